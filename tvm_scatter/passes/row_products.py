"""The product of a row with a transposed tensor reads the tensor as it is.

A decoder multiplies one row with all of its cache, transposed. TVM would write the transposed cache
to memory first, which takes longer than the product. The product is a sum over the last axis of
both, so it needs no transposed copy.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.ops.called import operator_of

from .functions import with_changes

_VIEWS = ("relax.broadcast_to", "relax.reshape")


def RowProducts() -> tvm.transform.Pass:
    """The pass. It changes products of one row with a tensor that depends on the input.

    Broadcasts to the shape that a tensor has already, which TVM would compute as copies, go, too.
    """

    def rewrite(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        changed = with_changes(mod, _rewritten)
        return mod if changed.same_as(mod) else relax.transform.DeadCodeElimination()(changed)

    return tvm.transform.module_pass(rewrite, opt_level=0, name="RowProducts")


def _rewritten(_name: Any, function: relax.Function) -> relax.Function | None:
    values: dict[Any, Any] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.SeqExpr):
            for block in expression.blocks:
                values.update((each.var, getattr(each, "value", None)) for each in block.bindings)

    relax.analysis.post_order_visit(function, visit)
    found = values.values()
    if not any(_is_copy(value) or _columns(value, values) is not None for value in found):
        return None
    return _Mutator(values).visit_expr(function)


@relax.expr_functor.mutator
class _Mutator(relax.PyExprMutator):
    def __init__(self, values: dict[Any, Any]) -> None:
        super().__init__()
        self.values = values

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if _is_copy(call):
            return self.visit_expr(call.args[0])
        columns = _columns(call, self.values)
        if columns is None:
            return super().visit_call_(call)
        shape = list(call.args[1].ty.shape)
        emit = self.builder_.emit
        rows = emit(relax.op.reshape(self.visit_expr(columns), [*shape[:-2], shape[-1], shape[-2]]))
        products = emit(relax.op.multiply(self.visit_expr(call.args[0]), rows))
        return relax.op.expand_dims(emit(relax.op.sum(products, [-1])), -2)


def _columns(call: Any, values: dict[Any, Any]) -> Any | None:
    """The tensor whose rows are the columns of the second operand; ``None`` if it is no such."""
    if operator_of(call) != "relax.matmul":
        return None
    row, second = (_shape(operand) for operand in call.args)
    if row is None or second is None or len(row) != len(second) or len(row) < 2:
        return None
    if row[:-2] != second[:-2] or row[-2] != 1 or call.ty.dtype != call.args[0].ty.dtype:
        return None
    viewed = call.args[1]
    while operator_of(values.get(viewed)) in _VIEWS:
        source: Any = values[viewed].args[0]
        before, after = _shape(source), _shape(viewed)
        if before is None or after is None or before[-2:] != after[-2:]:
            return None
        if prod(before) != prod(after):
            return None
        viewed = source
    transposed: Any = values.get(viewed)
    if operator_of(transposed) != "relax.permute_dims":
        return None
    source = transposed.args[0]
    if isinstance(source, tvm.ir.GenericConst) or not _swaps_last(transposed):
        return None
    return source


def _is_copy(call: Any) -> bool:
    """Whether a call broadcasts a tensor to the shape that it has."""
    if operator_of(call) != "relax.broadcast_to":
        return False
    before = _shape(call.args[0])
    return before is not None and before == _shape(call)


def _swaps_last(transposed: relax.Call) -> bool:
    rank = len(transposed.args[0].ty.shape)
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
