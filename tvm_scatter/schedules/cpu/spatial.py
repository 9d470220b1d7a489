"""Whatever has results that are computed apart from each other: shared among the threads."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight import SBlockInfo, normalize_prim_func, try_inline_contiguous_spatial
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule
from tvm.target import Target

from .machine import is_worth_threads


class Spatial(CPUScheduleRule):
    """The outer loops in parallel. LLVM makes vectors of the innermost one."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if its loops are not known to be independent."""
        if not self.is_target_available(target):
            return None
        schedule = s_tir.Schedule(func)
        blocks = try_inline_contiguous_spatial(schedule, normalize_prim_func(schedule))
        if not blocks:
            return None
        for block in blocks:
            _share(schedule, block)
        return schedule


def _share(schedule: s_tir.Schedule, block: SBlockInfo) -> None:
    kinds = block.dom_kind()
    loops = schedule.get_loops(block.block_rv)
    if "O" in kinds or len(loops) != len(kinds):
        return
    outer = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    inner = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    sums = inner
    sizes = [each.dom for each in block.iters if each.kind == "S"]
    if not inner and len(outer) > 1 and _fill_threads(sizes[:-1]):
        outer, inner = outer[:-1], outer[-1:]
    if outer and is_worth_threads(block.dom()):
        schedule.reorder(*outer, *inner)
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    elif outer and sums:
        schedule.reorder(*outer, *sums)
    if sums:
        # The loop may have no turns; the result is set all the same.
        schedule.decompose_reduction(block.block_rv, sums[0])


def _fill_threads(sizes: list[Any]) -> bool:
    """Whether so many turns are shared evenly among the threads of most CPUs."""
    return not all(isinstance(size, int) for size in sizes) or prod(sizes) >= 64
