"""Reductions of rows that are read by index, scheduled on CPUs whatever else is."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import Target

from tvm_scatter.emit.parameters import SCHEDULED
from tvm_scatter.emit.single_precision import in_single_precision, takes_too_long
from tvm_scatter.lowering.row_reductions import REDUCES_ROWS, reducing_blocks
from tvm_scatter.schedules.wide_reductions import with_wide_reductions
from tvm_scatter.selection.backend import backend_of

from .inner import InnerReduction
from .spatial import Spatial


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
    function = with_wide_reductions(function, products=True)
    if backend_of(target).widens_bfloat16:
        function = _in_single_precision(function)
    for rule in (InnerReduction(), Spatial()):
        schedule = rule.apply(function, target, False)
        if schedule is not None:
            return schedule.mod["main"].with_attr(SCHEDULED, True)
    return function


def _in_single_precision(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, which computes what it reduces in float32 wherever that was of bfloat16."""
    reducing = {block.body for block in reducing_blocks(function)}

    def widened(store: tirx.BufferStore) -> tirx.BufferStore:
        if store not in reducing or takes_too_long(store.value):
            return store
        return tirx.BufferStore(store.buffer, in_single_precision(store.value), store.indices)

    body = tvm_ffi.structural_map(function.body, (tirx.BufferStore, widened))
    return function.with_body(body)
