"""Functions of one block, in which everything else is computed."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.base import try_inline


def one_block(function: tirx.PrimFunc) -> tuple[s_tir.Schedule, SBlockInfo] | None:
    """A schedule of a function with one block left, and the block; ``None`` if more are."""
    if not isinstance(function.body, s_tir.SBlockRealize):
        return None
    schedule = s_tir.Schedule(function)
    blocks = try_inline(schedule, normalize_prim_func(schedule) or [])
    if len(blocks) != 1 or schedule.mod["main"].body.block.alloc_buffers:
        return None
    return schedule, blocks[0]
