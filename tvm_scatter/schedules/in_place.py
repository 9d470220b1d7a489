"""Elementwise functions, in which whatever can be is computed where it is read."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline

from tvm_scatter.lowering.row_reductions import reducing_blocks


def computed_in_place(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, unless it reduces: then it is returned as it is.

    Each rule of a schedule begins with this. For a long chain this takes most of their time.
    """
    if reducing_blocks(function) or not isinstance(function.body, s_tir.SBlockRealize):
        return function
    schedule = s_tir.Schedule(function)
    try_inline(schedule, normalize_prim_func(schedule) or [])
    return schedule.mod["main"]
