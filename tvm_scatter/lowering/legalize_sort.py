"""Lowers ``argsort`` of integers where the target has a sort of its own.

TVM's sort on GPUs merges sorted parts, in several launches also for the shortest lines.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.emit.sort import SortProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, static_shape
from tvm_scatter.selection.backend import backend_of

from .lines import call_of, sizes_of_lines
from .target import target_of

ARGSORT = "relax.argsort"


def legalize_argsort(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a sort; the call itself where TVM has to do it."""
    [data], attrs = call.args, call.attrs
    found = places_in_order(bb, data, int(attrs.axis), bool(attrs.descending), str(attrs.dtype))
    return call if found is None else found


def places_in_order(
    bb: relax.BlockBuilder, data: relax.Expr, axis: int, descending: bool, dtype: str
) -> relax.Expr | None:
    """The places of elements in order, equal ones as they come; ``None`` if only TVM sorts them."""
    target, shape = target_of(data), static_shape(data)
    sort = backend_of(target).sort
    if sort is None or not shape or is_empty(data):
        return None
    symbols, axis = SymbolTable(), axis % len(shape)
    whole = symbols.shape(ARGSORT, data)
    dtypes = str(data.ty.dtype), dtype

    def problem(values: dict[str, Any]) -> SortProblem:
        return SortProblem(*sizes_of_lines(whole, axis, values), *dtypes, descending)

    if not sort.takes(problem(symbols.values)):
        return None
    return call_of(
        bb,
        "sort",
        data,
        relax.TensorType(shape, dtype, data.ty.vdevice),
        [("data", whole, dtypes[0]), ("places", whole, dtype)],
        sort.workspace(problem(symbols.values)),
        lambda values, *buffers: sort.emit(problem(values), *buffers),
    )
