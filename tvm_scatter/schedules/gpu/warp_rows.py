"""The schedule of functions that reduce rows, and of those that compute rows from what they found.

Softmaxes, normalisations and maxima are such functions. TVM's own gives each row a block of 256
threads, which have little to do in short rows and wait for each other in each reduction: 726 us for
layers of (500 000, 128) numbers on an H200, where a copy takes 120. A maximum that has too few rows
to give some to each warp it leaves to one thread for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.base import ScheduleRule, try_inline_contiguous_spatial
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.lowering.one_reduction import are_at_most, one_reduction, spreads_reductions

_WARP = 32
_THREADS = 256
#: The longest row that a warp has for itself.
_LONGEST = 1024


class WarpRows(ScheduleRule):
    """Each row by a warp, which reduces it without waiting for others."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it does not compute short rows."""
        if not spreads_reductions(target) or not isinstance(func.body, s_tir.SBlockRealize):
            return None
        schedule = s_tir.Schedule(func)
        blocks = try_inline_contiguous_spatial(schedule, normalize_prim_func(schedule) or [])
        if not blocks or len(blocks) < 2 or not _are_of_rows(schedule, blocks[:-1], blocks[-1]):
            return None
        kinds = blocks[0].dom_kind()
        reductions = [each.block_rv for each in blocks[:-1]]
        if not _exchanges(schedule, reductions):
            return None
        sizes = kinds.count("S"), kinds.count("R")
        try:
            by_rows(schedule, reductions, sizes, blocks[-1].block_rv, _WARP)
        except s_tir.ScheduleError:
            # The rows of the last block may not be those of the others, by sizes that are unknown.
            return None
        return schedule


class RowReductions(ScheduleRule):
    """A row that is reduced once by a warp; long ones by a block, unless TVM has that for sums."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it does not reduce rows once."""
        if not spreads_reductions(target):
            return None
        found = one_reduction(func)
        if found is None or not found.beside:
            return None
        short = are_at_most(found.reduced, _LONGEST)
        if (found.is_sum and not short) or not _exchanges(found.schedule, [found.block]):
            return None
        schedule, lanes = found.schedule, _WARP if short else _THREADS
        result = found.after or schedule.cache_write(found.block, 0, "local")
        sizes = len(schedule.get_loops(result)), len(found.reduced)
        try:
            by_rows(schedule, [found.block], sizes, result, lanes)
        except s_tir.ScheduleError:
            return None
        return schedule


def by_rows(
    schedule: s_tir.Schedule,
    reductions: Sequence[SBlockRV],
    axes: tuple[int, int],
    last: SBlockRV,
    lanes: int,
) -> None:
    """Give each row to some threads, which exchange what they have reduced.

    Parameters
    ----------
    schedule : s_tir.Schedule
        Of the function. It is changed.
    reductions : sequence of s_tir.schedule.SBlockRV
        The reductions, in the order in which they need each other.
    axes : tuple of int
        How many axes of what needs the reductions count rows, and how many axes are reduced, which
        are the innermost. Axes of one element may count, or not.
    last : s_tir.schedule.SBlockRV
        What needs the reductions: it computes rows, or a number for each.
    lanes : int
        Threads of a row. More than a warp, and they are a block.
    """
    loops, (at, reduced) = schedule.get_loops(last), axes
    blocks, row = schedule.split(schedule.fuse(*loops[:at]), [None, _THREADS // lanes])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(row, "threadIdx.y")
    if loops[at:]:
        _by_lanes(schedule, loops[at:], lanes)
    for each in reversed(reductions):
        schedule.compute_at(each, row, preserve_unit_loops=True)
        for number in range(len(schedule.get(each).writes)):
            # Each thread has the results of its row.
            schedule.set_scope(each, number, "local")
        _by_lanes(schedule, schedule.get_loops(each)[-reduced:], lanes)


def _by_lanes(schedule: s_tir.Schedule, loops: Sequence[LoopRV], lanes: int) -> None:
    turns, lane = schedule.split(schedule.fuse(*loops), [None, lanes])
    schedule.reorder(lane, turns)
    schedule.bind(lane, "threadIdx.x")


def _exchanges(schedule: s_tir.Schedule, reductions: Sequence[SBlockRV]) -> bool:
    """Whether threads exchange what they have reduced safely: TVM cannot do so of truth values."""
    written = [each.source for block in reductions for each in schedule.get(block).writes]
    return all(str(each.dtype) != "bool" for each in written)


def _are_of_rows(
    schedule: s_tir.Schedule, reductions: Sequence[SBlockInfo], last: SBlockInfo
) -> bool:
    """Whether all reduce the same short rows, and the last computes them."""
    kinds = reductions[0].dom_kind()
    rows = kinds.count("S")
    if not rows or kinds != "S" * rows + "R" * (len(kinds) - rows) or kinds[-1] != "R":
        return False
    if not are_at_most([axis.dom for axis in reductions[0].iters[rows:]], _LONGEST):
        return False
    if any(each.dom_kind() != kinds or not each.is_reduction() for each in reductions):
        return False
    if last.dom_kind() != "S" * len(kinds):
        return False
    written = [w.source for each in reductions for w in schedule.get(each.block_rv).writes]
    return all(_reads_own_rows(schedule, each, rows, written) for each in (*reductions, last))


def _reads_own_rows(
    schedule: s_tir.Schedule, block: SBlockInfo, rows: int, results: Sequence[tirx.Buffer]
) -> bool:
    """Whether a block reads of the results those of its row alone."""
    own = [axis.var for axis in block.iters[:rows]]
    for load in all_of(schedule.get(block.block_rv).body, tvm.ir.TensorLoad):
        if any(load.source.same_as(each) for each in results):
            pairs = zip(load.indices, own, strict=False)
            if len(load.indices) != rows or not all(at.same_as(axis) for at, axis in pairs):
                return False
    return True
