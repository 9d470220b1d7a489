"""Reductions over a symbolic number of elements, which may be none.

TVM sets a result to its first value in the first turn of the loop. Of no elements there is no first
turn, and the result is what the memory held before. Schedules for GPUs set it before the loop.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_scatter.emit.parameters import SCHEDULED


def InitialiseReductions() -> tvm.transform.Pass:
    """The pass: results of reductions over symbolic extents are set before their loops.

    Functions that have a schedule keep it.
    """

    def initialise(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        if bool((function.attrs or {}).get(SCHEDULED, False)):
            return function
        return _initialised(function)

    return tirx.transform.prim_func_pass(initialise, opt_level=0, name="InitialiseReductions")


def may_reduce_nothing(function: tirx.PrimFunc) -> bool:
    """Whether a function has a reduction over a number of elements that may be zero."""
    return any(map(_may_be_of_none, _blocks(function)))


def _initialised(function: tirx.PrimFunc) -> tirx.PrimFunc:
    names = [block.name_hint for block in _blocks(function) if _may_be_of_none(block)]
    if not names:
        return function
    schedule = Schedule(function)
    for name in names:
        block = schedule.get_sblock(name)
        try:
            schedule.decompose_reduction(block, schedule.get_loops(block)[0])
        except ScheduleError:
            # A function of the user's, which no schedule can change: it stays as it is written.
            return function
    return function.with_body(schedule.mod["main"].body)


def _may_be_of_none(block: SBlock) -> bool:
    """Whether a block reduces over a number of elements that may be zero."""
    return block.init is not None and any(
        variable.iter_type == tirx.IterVar.CommReduce
        and not isinstance(variable.dom.extent, tirx.IntImm)
        for variable in block.iter_vars
    )


def _blocks(function: tirx.PrimFunc) -> list[SBlock]:
    found: list[SBlock] = []
    if isinstance(function.body, SBlockRealize):
        tvm_ffi.structural_walk(function.body, [(SBlock, found.append)], order="post")
    return found
