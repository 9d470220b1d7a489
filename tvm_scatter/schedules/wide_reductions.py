"""Reductions into narrow types, whose results so far are kept in 32 bits.

TVM keeps them in the type of the result. Then the sum of many ones stops at 2048 in float16 and at
256 in bfloat16, and threads that reduce together exchange what they cannot exchange safely: TVM
exchanges 32 bits in registers, and others through memory, where threads of a warp do not wait.
"""

from __future__ import annotations

from collections.abc import Mapping
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

_WIDE = dict.fromkeys(HALVES, "float32")
_WIDE_WITH_INTEGERS = {
    **_WIDE,
    **{"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"},
}
_COMBINING = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def WideReductions() -> tvm.transform.Pass:
    """The pass: functions that have no schedule reduce in single precision."""

    def widen(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        scheduled = bool((function.attrs or {}).get(SCHEDULED, False))
        return function if scheduled else with_wide_reductions(function)

    return tirx.transform.prim_func_pass(widen, opt_level=0, name="WideReductions")


def with_wide_reductions(
    function: tirx.PrimFunc, *, products: bool = False, integers: bool = False
) -> tirx.PrimFunc:
    """The function, in which a narrow result is rounded or cut once, behind its reduction.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        A function that is not scheduled yet.
    products : bool
        Whether this goes for sums of products too. Products of matrices have their own schedules.
    integers : bool
        Whether this goes for integers too. One thread need not keep more bits of these.
    """
    wide = _WIDE_WITH_INTEGERS if integers else _WIDE
    narrow = [block for block in reducing_blocks(function) if _is_narrow(block, wide, products)]
    if not narrow or not isinstance(function.body, SBlockRealize):
        return function
    own = [buffer for block in all_of(function.body, SBlock) for buffer in block.alloc_buffers]
    schedule = Schedule(function)
    try:
        for each in narrow:
            block = schedule.get_sblock(each.name_hint)
            if not any(each.body.buffer.same_as(buffer) for buffer in own):
                schedule.cache_write(block, 0, "global")
            schedule.unsafe_set_dtype(block, 0, wide[str(each.body.buffer.dtype)])
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
    if not isinstance(value, tirx.Cast) or not isinstance(value.value, _COMBINING):
        return block
    combine, taken = type(value.value), value.value.a
    if not isinstance(taken, tirx.Cast) or not _is_load_of(taken.value, store.buffer):
        return block
    narrow, wide = str(taken.ty.dtype), str(value.ty.dtype)
    if _WIDE_WITH_INTEGERS.get(narrow) != wide:
        return block
    together = combine(taken.value, tirx.Cast(wide, value.value.b))
    first = _first(combine, wide)
    if narrow not in HALVES:
        # Where there is nothing to reduce, an integer is what it would be in its own type.
        first = tirx.const(int(_first(combine, narrow)), wide)
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        tirx.BufferStore(store.buffer, together, store.indices),
        tirx.BufferStore(store.buffer, first, block.init.indices),
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
    return tirx.const(int(combine is tirx.Mul), dtype)


def _is_narrow(block: SBlock, wide: Mapping[str, str], products: bool) -> bool:
    """Whether a block takes numbers into a narrow result, and begins with none.

    A function of the user's may begin with another number. TVM does not spread it over threads.
    """
    store = block.body
    if not all(isinstance(each, tirx.BufferStore) for each in (block.init, store)):
        return False
    value, dtype = store.value, str(store.buffer.dtype)
    return (
        dtype in wide
        and isinstance(value, _COMBINING)
        and _is_load_of(value.a, store.buffer)
        and (products or not isinstance(value.b, tirx.Mul))
        and bool(tvm_ffi.structural_equal(block.init.value, _first(type(value), dtype)))
    )


def _is_load_of(value: Any, buffer: tirx.Buffer) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(buffer)
