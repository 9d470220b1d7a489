"""Helpers for lowering a scatter of any form to a problem. Nothing is emitted.

Operands that must be emitted besides the call's own are recorded in the order of emission.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from tvm_scatter.bounds.size_check import SizeCheck
from tvm_scatter.emit.computed_updates import Producer
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.emit.ordering import DTYPE as ORDERING_DTYPE
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.fused_updates import FusedUpdates
from tvm_scatter.ops.ordering import check_sizes
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import SymbolTable, expressions, same_size, static_shape
from tvm_scatter.options import Options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Dim, Signature
from tvm_scatter.problem.symbolic_size import SymbolicSize

from . import recipes
from .operands import Checked, Computed, Field, Fused, Given, Operand


@dataclass(frozen=True)
class Lowered:
    """A lowered call: the problem for the selection, and the operands for the emission.

    Attributes
    ----------
    problem : ScatterProblem
        The problem.
    signature : Signature
        The shapes of the operands.
    data, updates : Operand
        The operands with the shapes of the signature.
    indices : tuple of Operand
        One index tensor for each component, or one for all components.
    derived : tuple of Operand
        All operands that must be emitted, in order.
    check : IndexCheck
        The check of the indices. Its tensors are operands.
    symbols : dict of str to expression
        The expression for each symbolic size.
    bounds : str
        The policy for bad indices where no order of the updates is given.
    temporary : bool
        Whether the data is an intermediate value, which no caller sees if the call fails.
    orderable : bool
        Whether an ordering of the only index of the call is one of its updates.
    ordering : tuple of Operand
        The permutation and the offsets of the updates, or the offsets, if they are given.
    producer : Producer or None
        How the updates are computed where they are read; ``None`` if they are read from a tensor.
    epilogue : Producer or None
        How the result is computed where it is written; ``None`` if it is that of the scatter.
    result : relax.TensorType or None
        The type of the result; that of the data if it is ``None``.
    others : tuple of Operand
        The tensors that the result is computed from besides that of the scatter.
    known : str
        What is known of the indices, in words.
    """

    problem: ScatterProblem
    signature: Signature
    data: Operand
    indices: tuple[Operand, ...]
    updates: Operand
    derived: tuple[Operand, ...]
    check: IndexCheck
    symbols: dict[str, Any]
    bounds: str
    temporary: bool = False
    orderable: bool = False
    ordering: tuple[Operand, ...] = ()
    producer: Producer | None = None
    epilogue: Producer | None = None
    result: relax.TensorType | None = None
    others: tuple[Operand, ...] = ()
    known: str = field(default="", compare=False)

    def without_ordering(self) -> Lowered:
        """The same call, which makes its own order, and treats bad indices by its own policy."""
        unordered = replace(self.problem, ordered=False, in_order=False, order_alone=False)
        return replace(self, problem=replace(unordered, bounds=self.bounds), ordering=())

    def with_stored_updates(self) -> Lowered:
        """The same call, with updates that are computed into a tensor first."""
        return replace(self, problem=replace(self.problem, fused=False), producer=None)


class Draft:
    """A call that is being lowered.

    Parameters
    ----------
    call : ScatterCall
        The call.
    options : Options
        The options for the call.
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
        """The operand for a tensor of the call."""
        if isinstance(tensor, relax.TupleGetItem):
            return self.derive(Field(tensor.tuple_value, tensor.index))
        if isinstance(tensor, relax.Expr):
            return Given(tensor)
        if isinstance(tensor, FusedUpdates):
            return Fused(tensor)
        return self.derive(tensor)

    def derive(self, operand: Operand) -> Operand:
        """Record an operand that must be emitted. Equal operands are emitted once."""
        for earlier in self.derived:
            if earlier == operand:
                return earlier
        self.derived.append(operand)
        return operand

    def shape(self, operand: Operand) -> tuple[Dim, ...]:
        """The shape of an operand, with names for symbolic sizes."""
        return self.symbols.shape(self.operator, operand)

    def after(self, check: SizeCheck | None, tensors: dict[str, Operand]) -> dict[str, Operand]:
        """Replace each tensor that a check returns by the result of the check."""
        if check is None:
            return tensors
        checked = {name: self.derive(Checked(check, name)) for name in check.returned}
        return tensors | checked

    # Operands

    def signed(self, index: Operand) -> Operand:
        """The index as int64 if it is uint64, which no implementation supports."""
        if dtype_of(index) != "uint64":
            return index
        ty = relax.TensorType(index.ty.shape, "int64")
        return self.derive(Computed(recipes.signed, (index,), (), ty, "signed_index"))

    def of_one_dtype(self, indices: Sequence[Operand]) -> list[Operand]:
        """The index tensors in their common type. If their types differ, this is int64."""
        if len({dtype_of(index) for index in indices}) == 1:
            return list(indices)
        return [index if dtype_of(index) == "int64" else self._wide(index) for index in indices]

    def _wide(self, index: Operand) -> Operand:
        ty = relax.TensorType(index.ty.shape, "int64")
        return self.derive(Computed(recipes.wide, (index,), (), ty, "cast_index"))

    def broadcast(self, tensor: Operand, shape: Sequence[Dim]) -> Operand:
        """The tensor, broadcast to a shape."""
        if 0 in shape:
            # TVM cannot compile a broadcast to a tensor without elements.
            return self.zeros(shape, dtype_of(tensor), "empty")
        recipe = recipes.Broadcast(tuple(dim == 1 for dim in self.shape(tensor)))
        return self.compute(recipe, (tensor,), dtype_of(tensor), "broadcast_to", shape)

    def crop(self, tensor: Operand, box: Sequence[Dim]) -> Operand:
        """The part of a tensor of shape ``box`` that begins at its first element."""
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
        """A tensor of ``shape``. The recipe takes the sources, ``shape`` and then ``sizes``."""
        known = [tuple(expressions(dims, self.symbols.values)) for dims in (shape, *sizes)]
        ty = relax.TensorType(list(known[0]), dtype)
        return self.derive(Computed(recipe, tuple(sources), tuple(known), ty, hint))

    # Results

    def problem(self, **fields: Any) -> ScatterProblem:
        """A problem with the attributes and options of the call, and the given fields."""
        # Along an axis of size one a flag has no effect. It is normalised, so that equal problems
        # compare equal.
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
            fill=self.call.fill,
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
        """The check of index tensors against the extents that they address."""
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
        is_index: bool = True,
    ) -> Lowered:
        """The result of lowering.

        Parameters
        ----------
        is_index : bool
            Whether the indices are those of the call, so that an ordering of the call is of them.
        """
        epilogue, follows = self._epilogue(), self.call.epilogue
        signature = Signature(
            operator=self.operator,
            data=self.shape(data),
            indices=tuple(self.shape(index) for index in indices),
            updates=self.shape(updates),
            epilogue=None if epilogue is None else epilogue.updates,
        )
        producer = self._producer(updates) if isinstance(updates, Fused) else None
        # A single number has no axis, so that nothing along it is ordered.
        orderable = is_index and bool(signature.data) and _can_be_ordered(problem)
        ordering = self.call.ordering if orderable else ()
        problem = replace(problem, fused=producer is not None, softmax=self._has_logits)
        if epilogue is not None:
            problem = replace(problem, epilogue=str(self.call.ty.dtype))
        if ordering:
            # Whoever made the ordering has checked the indices. Behind it stand the bad ones.
            alone, in_order = self.call.order_alone, len(ordering) == 1
            problem = replace(
                problem, ordered=True, in_order=in_order, order_alone=alone, bounds="drop"
            )
            self._check_ordering(problem, ordering)
        return Lowered(
            problem=problem,
            signature=signature,
            data=data,
            indices=tuple(indices),
            updates=updates,
            derived=tuple(self.derived),
            check=check,
            symbols=self.symbols.values,
            bounds=self.bounds,
            temporary=self.call.temporary,
            orderable=orderable,
            ordering=tuple(map(self.operand, ordering)),
            producer=producer,
            epilogue=epilogue,
            result=None if follows is None else self.call.ty,
            others=tuple(map(self.operand, () if follows is None else follows.leaves)),
            known=self.call.known,
        )

    @property
    def _has_logits(self) -> bool:
        updates = self.call.updates
        return isinstance(updates, FusedUpdates) and updates.has_logits

    def _check_ordering(self, problem: ScatterProblem, ordering: Sequence[Any]) -> None:
        """Raise if an ordering is certainly not one of the updates."""
        sizes = {"permutation": (problem.count, 0), "offsets": (problem.extent, 1)}
        check_sizes(self.operator, problem.count, problem.extent)
        for name, tensor in zip(problem.ordering, ordering, strict=True):
            size, more = sizes[name]
            found = static_shape(tensor) or []
            wanted = size.constant + more if size.is_static else None
            wrong = len(found) != 1 or str(tensor.ty.dtype) != ORDERING_DTYPE
            if wrong or (wanted is not None and not same_size(found[0], wanted)):
                shape = f"({'K' if wanted is None else wanted},)"
                raise ScatterError(
                    f"{self.operator}: the {name} of ordering is {tensor.ty}; it must be "
                    f"{ORDERING_DTYPE} of shape {shape}."
                )

    def _producer(self, updates: Fused) -> Producer:
        leaves = tuple(self.symbols.shape(self.operator, leaf) for leaf in updates.updates.leaves)
        return Producer(updates.updates.function, leaves, self.shape(updates))

    def _epilogue(self) -> Producer | None:
        """How the result is computed. In all forms it lies in memory as the data of the call do."""
        epilogue = self.call.epilogue
        if epilogue is None:
            return None
        read = (self.call.data, *epilogue.leaves)
        leaves = tuple(self.symbols.shape(self.operator, each) for each in read)
        return Producer(epilogue.function, leaves, self.symbols.shape(self.operator, self.call))

    def into_flattened(
        self, data: Operand, places: Operand, updates: Operand, check: IndexCheck
    ) -> Lowered:
        """Lower to a scatter into the flattened data.

        This serves calls whose elements three loops over batch, count and slice cannot address.
        """
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
        return self.lowered(problem, data, [places], updates, check, is_index=False)


def _can_be_ordered(problem: ScatterProblem) -> bool:
    """Whether an ordering of the index is one of the updates: one index names each whole row."""
    once = problem.batch.is_one and not (problem.index_batch or problem.index_slice)
    return once and len(problem.extents) == 1 and not problem.reduces.is_store


def dtype_of(tensor: Any) -> str:
    """The data type of a tensor or an operand."""
    return str(tensor.ty.dtype)
