"""Reductions of 16-bit floats, whose results so far are kept in single precision.

TVM keeps them in the type of the result. Then the sum of many ones stops at 2048 in float16 and at
256 in bfloat16, and threads that reduce together exchange what they cannot exchange safely.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.emit.parameters import SCHEDULED
from tvm_scatter.lowering.row_reductions import reducing_blocks
from tvm_scatter.problem.reductions import HALVES

_WIDE = "float32"
_COMBINING = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def WideReductions() -> tvm.transform.Pass:
    """The pass: functions that have no schedule reduce in single precision."""

    def widen(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        scheduled = bool((function.attrs or {}).get(SCHEDULED, False))
        return function if scheduled else with_wide_reductions(function)

    return tirx.transform.prim_func_pass(widen, opt_level=0, name="WideReductions")


def with_wide_reductions(function: tirx.PrimFunc, *, products: bool = False) -> tirx.PrimFunc:
    """The function, in which a result of 16 bits is rounded once, behind its reduction.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        A function that is not scheduled yet.
    products : bool
        Whether this goes for sums of products too. Products of matrices have their own schedules.
    """
    narrow = [block for block in reducing_blocks(function) if _is_narrow(block, products)]
    if not narrow or not isinstance(function.body, SBlockRealize):
        return function
    own = [buffer for block in all_of(function.body, SBlock) for buffer in block.alloc_buffers]
    schedule = Schedule(function)
    try:
        for each in narrow:
            block = schedule.get_sblock(each.name_hint)
            if not any(each.body.buffer.same_as(buffer) for buffer in own):
                schedule.cache_write(block, 0, "global")
            schedule.unsafe_set_dtype(block, 0, _WIDE)
    except ScheduleError:
        # A function of the user's, which no schedule can change: it stays as it is written.
        return function
    body = schedule.mod["main"].body
    return function.with_body(tvm_ffi.structural_map(body, (SBlock, _not_rounded)))


def _not_rounded(block: SBlock) -> SBlock:
    """A block that reduces into a wide result, which it rounded at each turn."""
    store = block.body
    if not all(isinstance(each, tirx.BufferStore) for each in (block.init, store)):
        return block
    value = store.value
    if not _is_cast(value, _WIDE) or not isinstance(value.value, _COMBINING):
        return block
    combine, taken = type(value.value), value.value.a
    if not _is_cast(taken, *HALVES) or not _is_load_of(taken.value, store.buffer):
        return block
    together = combine(taken.value, tirx.Cast(_WIDE, value.value.b))
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        tirx.BufferStore(store.buffer, together, store.indices),
        tirx.BufferStore(store.buffer, _first(combine, _WIDE), block.init.indices),
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _first(combine: Any, dtype: str) -> Any:
    """What a result is before anything is taken into it."""
    if combine is tirx.Max:
        return tirx.min_value(dtype)
    if combine is tirx.Min:
        return tirx.max_value(dtype)
    return tirx.const(1.0 if combine is tirx.Mul else 0.0, dtype)


def _is_cast(value: Any, *dtypes: str) -> bool:
    return isinstance(value, tirx.Cast) and str(value.ty.dtype) in dtypes


def _is_narrow(block: SBlock, products: bool) -> bool:
    """Whether a block takes numbers into a result of 16 bits, and begins with none.

    A function of the user's may begin with another number. TVM does not spread it over threads.
    """
    store = block.body
    if not all(isinstance(each, tirx.BufferStore) for each in (block.init, store)):
        return False
    value, dtype = store.value, str(store.buffer.dtype)
    return (
        dtype in HALVES
        and isinstance(value, _COMBINING)
        and _is_load_of(value.a, store.buffer)
        and (products or not isinstance(value.b, tirx.Mul))
        and bool(tvm_ffi.structural_equal(block.init.value, _first(type(value), dtype)))
    )


def _is_load_of(value: Any, buffer: tirx.Buffer) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(buffer)
