"""Lowers ``topk`` of integers where the target finds the smallest elements, or sorts, by itself."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.emit.smallest import SmallestProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, static_shape
from tvm_scatter.selection.backend import backend_of

from .legalize_sort import places_in_order
from .lines import call_of, sizes_of_lines
from .target import target_of

TOPK = "relax.topk"


def legalize_smallest(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a selection, or a sort; the call itself where TVM has to sort."""
    [data], attrs = call.args, call.attrs
    shape = static_shape(data)
    if not shape or is_empty(data) or int(attrs.k) < 1:
        return call
    places = _selected(bb, call)
    if places is None:
        places = _first_of_all(bb, call)
    if places is None:
        return call
    kind = str(attrs.ret_type)
    if kind == "indices":
        return places
    values = bb.emit_te(_taken, data, places, int(attrs.axis) % len(shape))
    return values if kind == "values" else relax.Tuple([values, places])


def _selected(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """The places by a selection; ``None`` where the target has none, or sorts faster."""
    [data], attrs = call.args, call.attrs
    target, shape, count = target_of(data), static_shape(data) or [], int(attrs.k)
    smallest = backend_of(target).smallest
    symbols, axis = SymbolTable(), int(attrs.axis) % len(shape)
    whole = symbols.shape(TOPK, data)
    part = (*whole[:axis], count, *whole[axis + 1 :])
    dtypes = str(data.ty.dtype), str(attrs.dtype)

    def problem(values: dict[str, Any]) -> SmallestProblem:
        return SmallestProblem(*sizes_of_lines(whole, axis, values), *dtypes, count)

    if smallest is None or not smallest.takes(problem(symbols.values)):
        return None
    keys = bb.emit_te(_inverted, data) if attrs.largest else data
    return call_of(
        bb,
        "smallest",
        keys,
        relax.TensorType([*shape[:axis], count, *shape[axis + 1 :]], dtypes[1], data.ty.vdevice),
        [("data", whole, dtypes[0]), ("places", part, dtypes[1])],
        smallest.workspace(problem(symbols.values)),
        lambda values, *buffers: smallest.emit(problem(values), *buffers),
    )


def _first_of_all(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """The places by a sort; ``None`` where only TVM sorts."""
    [data], attrs = call.args, call.attrs
    axis, count = int(attrs.axis) % len(static_shape(data) or []), int(attrs.k)
    places = places_in_order(bb, data, axis, bool(attrs.largest), str(attrs.dtype))
    if places is None:
        return None

    def first(places: te.Tensor) -> te.Tensor:
        length, dtype = places.shape[axis], places.dtype

        def read(*at: Any) -> Any:
            return tirx.if_then_else(at[axis] < length, places(*at), tirx.const(0, dtype))

        return te.compute([*places.shape[:axis], count, *places.shape[axis + 1 :]], read, "first")

    return bb.emit_te(first, places)


def _inverted(data: te.Tensor) -> te.Tensor:
    """The same elements in the opposite order."""
    return te.compute(data.shape, lambda *at: data(*at) ^ -1, name="inverted")


def _taken(data: te.Tensor, places: te.Tensor, axis: int) -> te.Tensor:
    length, nothing = data.shape[axis], tirx.const(0, data.dtype)

    def read(*at: Any) -> Any:
        # A place may be a number of any type.
        place = tirx.Cast("int64", places(*at))
        return tirx.if_then_else(
            at[axis] < length, data(*at[:axis], place, *at[axis + 1 :]), nothing
        )

    return te.compute(places.shape, read, name="taken")
