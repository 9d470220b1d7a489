"""What all forms of a scatter need while a problem is made of one; nothing is emitted.

Operands that are not the call's own are noted in the order in which they are to be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_scatter.bounds.size_check import SizeCheck
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import SymbolTable, expressions
from tvm_scatter.options import Options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Dim, Signature
from tvm_scatter.problem.symbolic_size import SymbolicSize

from . import recipes
from .operands import Checked, Computed, Field, Given, Operand


@dataclass(frozen=True)
class Lowered:
    """A call in the form in which it is selected and emitted.

    Attributes
    ----------
    problem : ScatterProblem
        What is computed.
    signature : Signature
        The shapes of the operands.
    data, updates : Operand
        The operands behind the signature.
    indices : tuple of Operand
        One for each component, or one for all.
    derived : tuple of Operand
        All operands that must be made, in order.
    check : IndexCheck
        What is checked of the indices; its tensors are operands.
    symbols : dict of str to expression
        The expression behind each symbolic size.
    temporary : bool
        Whether the data is no caller's: nobody sees it if the call fails.
    """

    problem: ScatterProblem
    signature: Signature
    data: Operand
    indices: tuple[Operand, ...]
    updates: Operand
    derived: tuple[Operand, ...]
    check: IndexCheck
    symbols: dict[str, Any]
    temporary: bool = False


class Draft:
    """A call while it is lowered.

    Parameters
    ----------
    call : ScatterCall
        The call.
    options : Options
        The options in force.
    bounds : str
        The bounds policy.
    """

    def __init__(self, call: ScatterCall, options: Options, bounds: str) -> None:
        self.call = call
        self.operator = call.operator
        self.options = options
        self.bounds = bounds
        self.symbols = SymbolTable()
        self.derived: list[Operand] = []

    def operand(self, tensor: Any) -> Operand:
        """A tensor of the call."""
        if isinstance(tensor, relax.TupleGetItem):
            return self.derive(Field(tensor.tuple_value, tensor.index))
        if isinstance(tensor, relax.Expr):
            return Given(tensor)
        return self.derive(tensor)

    def derive(self, operand: Operand) -> Operand:
        """Note an operand that must be made; what was noted before is made once."""
        for earlier in self.derived:
            if earlier == operand:
                return earlier
        self.derived.append(operand)
        return operand

    def shape(self, operand: Operand) -> tuple[Dim, ...]:
        """The shape, with names for symbolic sizes."""
        return self.symbols.shape(self.operator, operand)

    def after(self, check: SizeCheck | None, tensors: dict[str, Operand]) -> dict[str, Operand]:
        """The tensors, those that a check returns as they are after it."""
        if check is None:
            return tensors
        checked = {name: self.derive(Checked(check, name)) for name in check.returned}
        return tensors | checked

    # Operands

    def signed(self, index: Operand) -> Operand:
        """An index as implementations take it, which know no uint64."""
        if dtype_of(index) != "uint64":
            return index
        ty = relax.TensorType(index.ty.shape, "int64")
        return self.derive(Computed(recipes.signed, (index,), (), ty, "signed_index"))

    def of_one_dtype(self, indices: Sequence[Operand]) -> list[Operand]:
        """Index tensors of one type: int64 if they differ."""
        if len({dtype_of(index) for index in indices}) == 1:
            return list(indices)
        return [index if dtype_of(index) == "int64" else self._wide(index) for index in indices]

    def _wide(self, index: Operand) -> Operand:
        ty = relax.TensorType(index.ty.shape, "int64")
        return self.derive(Computed(recipes.wide, (index,), (), ty, "cast_index"))

    def broadcast(self, tensor: Operand, shape: Sequence[Dim]) -> Operand:
        """A tensor broadcast to a shape."""
        if 0 in shape:
            # TVM cannot compile a broadcast to a tensor without elements.
            return self.zeros(shape, dtype_of(tensor), "empty")
        recipe = recipes.Broadcast(tuple(dim == 1 for dim in self.shape(tensor)))
        return self.compute(recipe, (tensor,), dtype_of(tensor), "broadcast_to", shape)

    def crop(self, tensor: Operand, box: Sequence[Dim]) -> Operand:
        """The box of a tensor that begins at its first element."""
        if self.shape(tensor) == tuple(box):
            return tensor
        return self.compute(recipes.crop, (tensor,), dtype_of(tensor), "crop", box)

    def zeros(self, shape: Sequence[Dim], dtype: str, hint: str) -> Operand:
        """A tensor of zeros."""
        return self.compute(recipes.Zeros(dtype), (), dtype, hint, shape)

    def compute(
        self,
        recipe: Any,
        sources: Sequence[Operand],
        dtype: str,
        hint: str,
        shape: Sequence[Dim],
        *sizes: Sequence[Dim],
    ) -> Operand:
        """A tensor of a shape, which the recipe is given, and more sizes behind it."""
        known = [tuple(expressions(dims, self.symbols.values)) for dims in (shape, *sizes)]
        ty = relax.TensorType(list(known[0]), dtype)
        return self.derive(Computed(recipe, tuple(sources), tuple(known), ty, hint))

    # Results

    def problem(self, **fields: Any) -> ScatterProblem:
        """A problem with what the call asks for."""
        # An axis of one position varies over nothing; one spelling makes equal problems equal.
        for axis in ("batch", "count", "slice"):
            if fields[axis].is_one:
                fields[f"update_{axis}"] = True
                if axis != "count":
                    fields[f"index_{axis}"] = False
        return ScatterProblem(
            data_dtype=dtype_of(self.call.data),
            reduction=self.call.reduction,
            include_self=self.call.include_self,
            unique=self.call.unique,
            deterministic=self.options.deterministic or self.call.ordered,
            in_place=self.call.in_place,
            bounds=self.bounds,
            **fields,
        )

    def index_check(
        self,
        data: Operand,
        indices: Sequence[Operand],
        extents: Sequence[Dim],
        interleaved: bool = False,
    ) -> IndexCheck:
        """What is checked of index tensors."""
        return IndexCheck(
            operator=self.operator,
            data=data,
            data_shape=self.shape(data),
            data_dtype=dtype_of(data),
            indices=tuple(indices),
            shapes=tuple(self.shape(index) for index in indices),
            extents=tuple(extents),
            interleaved=interleaved,
            wrap_negative=self.call.wrap_negative,
            index_dtypes=tuple(dtype_of(index) for index in indices),
        )

    def lowered(
        self,
        problem: ScatterProblem,
        data: Operand,
        indices: Sequence[Operand],
        updates: Operand,
        check: IndexCheck,
    ) -> Lowered:
        """The call, lowered to a problem."""
        signature = Signature(
            operator=self.operator,
            data=self.shape(data),
            indices=tuple(self.shape(index) for index in indices),
            updates=self.shape(updates),
        )
        return Lowered(
            problem=problem,
            signature=signature,
            data=data,
            indices=tuple(indices),
            updates=updates,
            derived=tuple(self.derived),
            check=check,
            symbols=self.symbols.values,
            temporary=self.call.temporary,
        )

    def into_flattened(
        self, data: Operand, places: Operand, updates: Operand, check: IndexCheck
    ) -> Lowered:
        """A scatter into the flattened data, for what three loops cannot say."""
        varies = bool(self.shape(updates))
        problem = self.problem(
            batch=SymbolicSize(),
            extents=(SymbolicSize.product(self.shape(data)),),
            slice=SymbolicSize(),
            count=SymbolicSize.product(self.shape(places)),
            index_dtype="int64",
            update_batch=varies,
            update_count=varies,
            update_slice=varies,
            wrap_negative=False,
        )
        return self.lowered(problem, data, [places], updates, check)


def dtype_of(tensor: Any) -> str:
    """The data type of a tensor or an operand."""
    return str(tensor.ty.dtype)
