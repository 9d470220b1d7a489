"""Reductions of rows that are read by index, scheduled on CPUs whatever else is."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_scatter.lowering.row_reductions import REDUCES_ROWS
from tvm_scatter.schedules.wide_reductions import with_wide_reductions
from tvm_scatter.selection.backend import backend_of

from .inner import InnerReduction
from .spatial import Spatial

_SCHEDULED = "tirx.is_scheduled"


def scheduled_row_reductions(mod: tvm.IRModule, target: Target | None) -> tvm.IRModule:
    """The module, in which they are sums of vectors, shared among threads."""
    backend = None if target is None else backend_of(target)
    if backend is None or backend.is_gpu or not backend.sums_rows_by_default:
        return mod
    result = mod
    for name, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc) and REDUCES_ROWS in (function.attrs or {}):
            result = mod.clone() if result is mod else result
            result.update_func(name, _scheduled(function, target))
    return result


def _scheduled(function: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    function = with_wide_reductions(function)
    for rule in (InnerReduction(), Spatial()):
        schedule = rule.apply(function, target, False)
        if schedule is not None:
            return schedule.mod["main"].with_attr(_SCHEDULED, True)
    return function
