"""Lowers ``topk`` of integers where the target finds the smallest elements, or sorts, by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.emit.smallest import SmallestProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, static_shape
from tvm_scatter.selection.backend import backend_of

from .legalize_sort import plan_sort
from .lines import LeftToTVM, PlannedLines, sizes_of_lines
from .target import target_of

TOPK = "relax.topk"


def legalize_smallest(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a selection, or a sort; the call itself where TVM has to sort."""
    [data], attrs = call.args, call.attrs
    try:
        places = _places(bb, call)
    except LeftToTVM:
        return call
    kind = str(attrs.ret_type)
    if kind == "indices":
        return places
    values = bb.emit_te(_taken, data, places, int(attrs.axis) % len(static_shape(data) or []))
    return values if kind == "values" else relax.Tuple([values, places])


def form_of_topk(call: relax.Call) -> str:
    """How the elements are found, as a clause.

    Raises
    ------
    LeftToTVM
        If TVM finds them.
    """
    _check(call)
    try:
        return _planned(call).form
    except LeftToTVM as refusal:
        return f"sorted, because {refusal}: {_planned_sort(call).form}"


def _places(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit what finds the places."""
    _check(call)
    try:
        planned = _planned(call)
    except LeftToTVM:
        return _first_of_all(bb, call, _planned_sort(call))
    [data] = call.args
    keys = bb.emit_te(_inverted, data) if call.attrs.largest else data
    return planned.emit(bb, "smallest", keys)


def _check(call: relax.Call) -> None:
    """Raise if there is nothing to find, or if nothing is known of the lines."""
    [data] = call.args
    if not static_shape(data) or is_empty(data):
        raise LeftToTVM("its lines are unknown or empty")
    if int(call.attrs.k) < 1:
        raise LeftToTVM("all or none of a line are wanted")


def _planned(call: relax.Call) -> PlannedLines:
    """Plan a selection.

    Raises
    ------
    LeftToTVM
        Where the target has none, or sorts faster.
    """
    [data], attrs = call.args, call.attrs
    target, shape, count = target_of(data), static_shape(data) or [], int(attrs.k)
    smallest = backend_of(target).smallest
    if smallest is None:
        raise LeftToTVM(f"this package has no selection for {target.kind.name}")
    symbols, axis = SymbolTable(), int(attrs.axis) % len(shape)
    whole = symbols.shape(TOPK, data)
    part = (*whole[:axis], count, *whole[axis + 1 :])
    dtypes = str(data.ty.dtype), str(attrs.dtype)

    def problem(values: Mapping[str, Any]) -> SmallestProblem:
        return SmallestProblem(*sizes_of_lines(whole, axis, values), *dtypes, count)

    refusal = smallest.refusal(problem(symbols.values))
    if refusal is not None:
        raise LeftToTVM(refusal)
    sizes = [*shape[:axis], count, *shape[axis + 1 :]]
    type_ = relax.TensorType(sizes, dtypes[1], data.ty.vdevice)
    parameters = [("data", whole, dtypes[0]), ("places", part, dtypes[1])]
    return PlannedLines(smallest, problem, symbols.values, type_, parameters)


def _planned_sort(call: relax.Call) -> PlannedLines:
    [data], attrs = call.args, call.attrs
    return plan_sort(data, int(attrs.axis), bool(attrs.largest), str(attrs.dtype))


def _first_of_all(bb: relax.BlockBuilder, call: relax.Call, planned: PlannedLines) -> relax.Expr:
    """The places by a sort."""
    [data] = call.args
    axis, count = int(call.attrs.axis) % len(static_shape(data) or []), int(call.attrs.k)
    places = planned.emit(bb, "sort", data)

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
