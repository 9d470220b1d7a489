"""The product of a row with a transposed or repeated tensor reads the tensor as it is.

A decoder multiplies one row with all of its cache, transposed, and scaled by a number. TVM would
write what it multiplies with to memory first, which takes longer than the product. The product is a
sum over the last axis of both, so it needs no transposed copy, and the row or the sum is scaled
instead.

Where heads share their keys and values, TVM would also write these once for each head. The rows of
such heads are multiplied with the same part of the cache, by one product that has the cache as it
lies in memory on its left. On a GPU values, which are not transposed, are left alone: by TVM's
schedule of a product of few rows most of the GPU has nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.ops.called import operator_of
from tvm_scatter.problem.reductions import HALVES

from .functions import with_changes
from .report import note

#: A GPU multiplies up to so many rows while it reads the other factor once.
_MOST_ROWS = 8
_VIEWS = ("relax.broadcast_to", "relax.reshape", "relax.expand_dims")


@dataclass(frozen=True)
class _Second:
    """What the second operand of a product is made of.

    Attributes
    ----------
    source : relax.Expr
        The tensor in memory.
    transposed : bool
        Whether its last two axes are swapped.
    repeats : int
        How many matrices that follow each other are the same matrix of the source.
    scales : tuple of relax.Expr
        Numbers that it is multiplied with.
    """

    source: Any
    transposed: bool
    repeats: int
    scales: tuple[Any, ...]

    def __str__(self) -> str:
        words = ["what is transposed"] if self.transposed else []
        words += [f"what {self.repeats} matrices share"] if self.repeats > 1 else []
        return " and ".join(words)


def RowProducts(on_gpu: bool = False) -> tvm.transform.Pass:
    """The pass. It changes products of one row with a tensor that depends on the input.

    Broadcasts to the shape that a tensor has already, which TVM would compute as copies, go, too.

    Parameters
    ----------
    on_gpu : bool
        Whether the module will run on a GPU.
    """

    def rewrite(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        def changed_function(name: Any, function: relax.Function) -> relax.Function | None:
            return _rewritten(name.name_hint, function, on_gpu)

        changed = with_changes(mod, changed_function)
        return mod if changed.same_as(mod) else relax.transform.DeadCodeElimination()(changed)

    return tvm.transform.module_pass(rewrite, opt_level=0, name="RowProducts")


def _rewritten(name: str, function: relax.Function, on_gpu: bool) -> relax.Function | None:
    values: dict[Any, Any] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.SeqExpr):
            for block in expression.blocks:
                values.update((each.var, getattr(each, "value", None)) for each in block.bindings)

    relax.analysis.post_order_visit(function, visit)
    found = values.values()
    if not any(_is_copy(value) or _second(value, values, on_gpu) is not None for value in found):
        return None
    return _Mutator(name, values, on_gpu).visit_expr(function)


@relax.expr_functor.mutator
class _Mutator(relax.PyExprMutator):
    def __init__(self, name: str, values: dict[Any, Any], on_gpu: bool) -> None:
        super().__init__()
        self.name, self.values, self.on_gpu = name, values, on_gpu

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        is_copy = _is_copy(binding.value) and isinstance(binding.var, relax.DataflowVar)
        source = self.visit_expr(binding.value.args[0]) if is_copy else None
        if isinstance(source, relax.Var):
            # Not another name for the tensor, behind which later passes would not see what made it.
            self.set_var_remap(binding.var, source)
        else:
            second = _second(binding.value, self.values, self.on_gpu)
            if second is not None:
                note("products", f"{self.name}.{binding.var.name}", f"reads {second} as it lies")
            super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if _is_copy(call):
            return self.visit_expr(call.args[0])
        second = _second(call, self.values, self.on_gpu)
        if second is None:
            return super().visit_call_(call)
        row, matrix = self.visit_expr(call.args[0]), self.visit_expr(second.source)
        dtype = str(call.ty.dtype)
        # Scaled, a row of 16 bits may be too large for its type. A sum in single precision is not.
        scales_row = str(row.ty.dtype) == dtype
        row = self._scaled(row, second.scales) if scales_row else row
        shape = _shape(call.args[1]) or []
        if second.repeats > 1:
            result = self._shared(row, matrix, shape, second, dtype)
        else:
            result = self._sum(row, matrix, shape, _rows(call), dtype)
        result = result if scales_row else self._scaled(self.builder_.emit(result), second.scales)
        return relax.op.reshape(result, call.ty.shape)

    def _scaled(self, tensor: Any, scales: Sequence[Any]) -> Any:
        for scale in scales:
            factor = relax.const(scale.value.numpy(), str(tensor.ty.dtype))
            tensor = self.builder_.emit(relax.op.multiply(tensor, factor))
        return tensor

    def _sum(self, row: Any, matrix: Any, shape: Sequence[int], rows: int, dtype: str) -> Any:
        """A few rows times the columns of a matrix, which lie in memory as rows."""
        emit = self.builder_.emit
        *batch, length, width = shape
        columns = emit(relax.op.reshape(matrix, [*batch, width, 1, length]))
        row = emit(relax.op.reshape(row, [*batch, 1, rows, length]))
        if str(row.ty.dtype) != dtype:
            row, columns = (emit(relax.op.astype(each, dtype)) for each in (row, columns))
        found = emit(relax.op.sum(emit(relax.op.multiply(row, columns)), [-1]))
        if rows == 1:
            return found
        rank = len(batch)
        return emit(relax.op.permute_dims(found, [*range(rank), rank + 1, rank]))

    def _shared(
        self, row: Any, matrix: Any, shape: Sequence[int], second: _Second, dtype: str
    ) -> Any:
        """Rows that follow each other times the matrix that they share."""
        emit = self.builder_.emit
        *batch, length, width = shape
        count = prod(batch) // second.repeats
        rows = emit(relax.op.reshape(row, [count, second.repeats, length]))
        if second.transposed and self.on_gpu and second.repeats <= _MOST_ROWS:
            return self._sum(rows, matrix, [count, length, width], second.repeats, dtype)
        if not second.transposed:
            matrix = emit(relax.op.reshape(matrix, [count, length, width]))
            return emit(relax.op.matmul(rows, matrix, dtype))
        matrix = emit(relax.op.reshape(matrix, [count, width, length]))
        columns = emit(relax.op.permute_dims(rows, [0, 2, 1]))
        return emit(relax.op.permute_dims(emit(relax.op.matmul(matrix, columns, dtype)), [0, 2, 1]))


def _second(call: Any, values: dict[Any, Any], on_gpu: bool) -> _Second | None:
    """The second operand of a product of one row; ``None`` if nothing is gained."""
    if operator_of(call) != "relax.matmul":
        return None
    row, second = (_shape(operand) for operand in call.args)
    if row is None or second is None or len(row) != len(second) or len(row) < 2:
        return None
    if row[:-2] != second[:-2] or not 1 <= row[-2] <= (_MOST_ROWS if on_gpu else 1) or 0 in second:
        return None
    if call.args[0].ty.dtype != call.args[1].ty.dtype:
        return None
    source, transposed, views, scales = call.args[1], False, [], []
    while (value := values.get(source)) is not None:
        operator = operator_of(value)
        if operator in _VIEWS and _keeps_matrices(value):
            views.append(value)
        elif operator == "relax.permute_dims" and _swaps_last(value):
            transposed = not transposed
        elif operator == "relax.multiply" and _is_number(value.args[1]):
            scales.append(value.args[1])
        else:
            break
        source = value.args[0]
    repeats = _repeats(source, views)
    if row[-2] > 1 and repeats > 1:
        return None
    gains = transposed or (repeats > 1 and not on_gpu)
    if not gains or repeats == 0 or isinstance(source, tvm.ir.GenericConst):
        return None
    if scales and str(call.ty.dtype) in HALVES:
        # Scaled, the row might be too large for its type.
        return None
    return _Second(source, transposed, repeats, tuple(scales))


def _rows(product: relax.Call) -> int:
    """How many rows each product of a batch has."""
    return int(product.args[0].ty.shape.values[-2])


def _keeps_matrices(view: relax.Call) -> bool:
    """Whether the last two axes are what they were."""
    before, after = _shape(view.args[0]), _shape(view)
    if before is None or after is None or len(before) < 2 or before[-2:] != after[-2:]:
        return False
    if operator_of(view) != "relax.expand_dims":
        return True
    return all(int(axis) % len(after) < len(after) - 2 for axis in view.attrs.axis)


def _repeats(source: Any, views: Sequence[relax.Call]) -> int:
    """How often each matrix follows itself; 0 if they stand in another order."""
    shape = _shape(source)
    if shape is None or len(shape) < 2:
        return 0
    count = prod(shape[:-2])
    numbers = np.arange(count).reshape(shape[:-2])
    for view in reversed(views):
        batch = (_shape(view) or [])[:-2]
        if operator_of(view) == "relax.broadcast_to":
            numbers = np.broadcast_to(numbers, batch)
        else:
            numbers = numbers.reshape(batch)
    repeats = numbers.size // count
    return repeats if np.array_equal(numbers.ravel(), np.arange(count).repeat(repeats)) else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and _shape(value) == []


def _is_copy(call: Any) -> bool:
    """Whether a call broadcasts a tensor to the shape that it has."""
    if operator_of(call) != "relax.broadcast_to":
        return False
    before = _shape(call.args[0])
    return before is not None and before == _shape(call)


def _swaps_last(transposed: relax.Call) -> bool:
    shape = _shape(transposed.args[0])
    if shape is None or len(shape) < 2:
        return False
    rank = len(shape)
    axes = transposed.attrs.axes
    order = list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]
    return order == [*range(rank - 2), rank - 1, rank - 2]


def _shape(tensor: Any) -> list[int] | None:
    """The sizes of a tensor; ``None`` if one of them is not known."""
    shape = getattr(tensor.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = [int(each) for each in shape if isinstance(each, tvm.tirx.IntImm)]
    return sizes if len(sizes) == len(shape) else None
