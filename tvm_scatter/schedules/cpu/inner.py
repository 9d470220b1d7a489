"""Reductions along what stands side by side in memory: sums of rows, inner products.

Each thread adds up vectors, and at the end the numbers of the last vector. So the order of a sum is
not the one in which it is written. It depends on the sizes alone: each run gives the same bits.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule
from tvm.target import Target

from .blocks import Reduced, is_read_along, lie_side_by_side, reduced
from .machine import is_worth_threads, registers


class InnerReduction(CPUScheduleRule):
    """Sums of vectors, added up at the end."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no reduction along the last axis."""
        if not self.is_target_available(target):
            return None
        found = reduced(func)
        if found is None or not found.spatial:
            return None
        reads, last = found.reads(), found.reduced[-1]
        if not is_read_along(reads, last) or not lie_side_by_side(reads, last):
            return None
        lanes = _lanes(found, registers(target).lanes(found.bits()))
        return None if lanes is None else _scheduled(found, lanes)


def _lanes(found: Reduced, lanes: int) -> int | None:
    """The numbers of a vector of sums; ``None`` if no vector divides the row."""
    count = found.sizes()[found.reduced[-1]]
    if not isinstance(count, int) or count == 0:
        return None
    sizes = (lanes, lanes // 2, lanes // 4)
    return next((size for size in sizes if size > 1 and count % size == 0), None)


def _scheduled(found: Reduced, lanes: int) -> s_tir.Schedule:
    schedule, block = found.schedule, found.block.block_rv
    _, lane = schedule.split(schedule.get_loops(block)[-1], [None, lanes])
    steps = [schedule.rfactor(lane, len(found.spatial))]
    while lanes > 2:
        lanes //= 2
        _, lane = schedule.split(schedule.get_loops(block)[-1], [None, lanes])
        steps.append(schedule.rfactor(lane, len(found.spatial)))
    result = found.epilogue.block_rv if found.epilogue else block
    outer = schedule.get_loops(result)[: len(found.spatial)]
    each = schedule.fuse(*outer) if len(outer) > 1 else outer[0]
    if found.epilogue:
        schedule.compute_at(block, each, preserve_unit_loops=True)
    for vectors in reversed(steps):
        schedule.compute_at(vectors, each, preserve_unit_loops=True)
    if is_worth_threads(found.sizes().values()):
        schedule.parallel(each)
    for vectors in steps:
        _add_vectors(schedule, vectors)
    return schedule


def _add_vectors(schedule: s_tir.Schedule, vectors: Any) -> None:
    variables = schedule.get(vectors).iter_vars
    loops = schedule.get_loops(vectors)[-len(variables) :]
    pairs = list(zip(loops, variables, strict=True))
    sums = [loop for loop, each in pairs if each.iter_type == tirx.IterVar.CommReduce]
    lane = loops[0]
    schedule.reorder(*sums, lane)
    schedule.vectorize(lane)
    start = schedule.decompose_reduction(vectors, sums[0])
    schedule.vectorize(schedule.get_loops(start)[-1])
