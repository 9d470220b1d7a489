"""Lowers ``argsort`` of integers where the target has a sort of its own.

TVM's sort on GPUs merges sorted parts, in several launches also for the shortest lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from tvm_scatter.emit.sort import SortProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, static_shape
from tvm_scatter.selection.backend import backend_of

from .lines import LeftToTVM, PlannedLines, sizes_of_lines
from .target import target_of

ARGSORT = "relax.argsort"


def legalize_argsort(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a sort; the call itself where TVM has to do it."""
    try:
        return _planned(call).emit(bb, "sort", call.args[0])
    except LeftToTVM:
        return call


def form_of_argsort(call: relax.Call) -> str:
    """How a sort is done, as a clause.

    Raises
    ------
    LeftToTVM
        If TVM does it.
    """
    return _planned(call).form


def plan_sort(data: relax.Expr, axis: int, descending: bool, dtype: str) -> PlannedLines:
    """Plan to find the places of elements in order, equal ones as they come.

    Raises
    ------
    LeftToTVM
        If only TVM sorts them.
    """
    target, shape = target_of(data), static_shape(data)
    sort = backend_of(target).sort
    if sort is None:
        raise LeftToTVM(f"this package has no sort for {target.kind.name}")
    if not shape or is_empty(data):
        raise LeftToTVM("its lines are unknown or empty")
    symbols, axis = SymbolTable(), axis % len(shape)
    whole = symbols.shape(ARGSORT, data)
    dtypes = str(data.ty.dtype), dtype

    def problem(values: Mapping[str, Any]) -> SortProblem:
        return SortProblem(*sizes_of_lines(whole, axis, values), *dtypes, descending)

    refusal = sort.refusal(problem(symbols.values))
    if refusal is not None:
        raise LeftToTVM(refusal)
    type_ = relax.TensorType(shape, dtype, data.ty.vdevice)
    parameters = [("data", whole, dtypes[0]), ("places", whole, dtype)]
    return PlannedLines(sort, problem, symbols.values, type_, parameters)


def _planned(call: relax.Call) -> PlannedLines:
    [data], attrs = call.args, call.attrs
    return plan_sort(data, int(attrs.axis), bool(attrs.descending), str(attrs.dtype))
