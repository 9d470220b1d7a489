"""Lowers ``topk`` of integers where the target finds the smallest elements without a sort."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from tvm_scatter.emit.smallest import SmallestProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, static_shape
from tvm_scatter.selection.backend import backend_of

from .lines import function_of, sizes_of_lines
from .target import target_of

TOPK = "relax.topk"


def legalize_smallest(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a selection; the call itself where TVM has to sort."""
    [data], attrs = call.args, call.attrs
    target, shape, count = target_of(data), static_shape(data), int(attrs.k)
    smallest = backend_of(target).smallest
    if smallest is None or not shape or is_empty(data) or count < 1:
        return call
    symbols, axis = SymbolTable(), int(attrs.axis) % len(shape)
    whole = symbols.shape(TOPK, data)
    part = (*whole[:axis], count, *whole[axis + 1 :])
    dtypes = str(data.ty.dtype), str(attrs.dtype)

    def problem(values: dict[str, Any]) -> SmallestProblem:
        return SmallestProblem(*dtypes, count, *sizes_of_lines(whole, axis, values))

    if not smallest.takes(problem(symbols.values)):
        return call
    parameters = [("data", whole, dtypes[0]), ("places", part, dtypes[1])]
    func = function_of(
        target, parameters, lambda values, *buffers: smallest.emit(problem(values), *buffers)
    )
    keys = bb.emit_te(_inverted, data) if attrs.largest else data
    wanted = [*shape[:axis], count, *shape[axis + 1 :]]
    type_ = relax.TensorType(wanted, dtypes[1], data.ty.vdevice)
    places = bb.emit(relax.op.call_tir(bb.add_func(func, "smallest"), [keys], type_))
    kind = str(attrs.ret_type)
    if kind == "indices":
        return places
    values = bb.emit_te(_taken, data, places, axis)
    return values if kind == "values" else relax.Tuple([values, places])


def _inverted(data: te.Tensor) -> te.Tensor:
    """The same elements in the opposite order."""
    return te.compute(data.shape, lambda *at: data(*at) ^ -1, name="inverted")


def _taken(data: te.Tensor, places: te.Tensor, axis: int) -> te.Tensor:
    def read(*at: Any) -> Any:
        return data(*at[:axis], places(*at), *at[axis + 1 :])

    return te.compute(places.shape, read, name="taken")
