"""The schedule of functions that reduce rows, and of those that compute rows from what they found.

Softmaxes, normalisations and maxima are such functions. TVM's own gives each row a block of 256
threads, which have little to do in short rows and wait for each other in each reduction: 726 us for
layers of (500 000, 128) numbers on an H200, where a copy takes 120. A maximum that has too few rows
to give some to each warp it leaves to one thread for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from tvm_scatter.lowering.computed_rows import WARP_ROW, ComputedRows, computed_rows
from tvm_scatter.lowering.one_reduction import are_at_most, one_reduction, spreads_reductions

from .kept_rows import keep_own_elements

_WARP = 32
_THREADS = 256


class WarpRows(ScheduleRule):
    """Each row by a warp, which reduces it without waiting for others, or a long one by a block.

    A long row is left to TVM if nothing is computed in front of its reductions.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it does not compute short rows."""
        if not spreads_reductions(target):
            return None
        return _first_that_holds(lambda beside: self._scheduled(func, beside))

    def _scheduled(self, func: tirx.PrimFunc, beside: bool) -> s_tir.Schedule | None:
        rows = computed_rows(func)
        if rows is None or not _exchanges(rows.schedule, rows.reductions):
            return None
        if rows.outer == len(rows.schedule.get_loops(rows.last)) and len(rows.reductions) < 2:
            return None  # That one is short, or :class:`RowReductions` takes it.
        schedule, lanes = rows.schedule, _WARP if rows.length <= WARP_ROW else _THREADS
        axes = (rows.outer, len(rows.row))
        by_rows(schedule, rows.reductions, axes, rows.last, lanes, beside)
        return _with_kept(rows, lanes)


class RowReductions(ScheduleRule):
    """A row that is reduced once by a warp; long ones by a block, unless TVM has that for sums."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it does not reduce rows once."""
        if not spreads_reductions(target):
            return None
        return _first_that_holds(lambda beside: self._scheduled(func, beside))

    def _scheduled(self, func: tirx.PrimFunc, beside: bool) -> s_tir.Schedule | None:
        found = one_reduction(func)
        if found is None or not found.beside:
            return None
        short = are_at_most(found.reduced, WARP_ROW)
        if (found.is_sum and not short) or not _exchanges(found.schedule, [found.block]):
            return None
        schedule, lanes = found.schedule, _WARP if short else _THREADS
        result = found.after or schedule.cache_write(found.block, 0, "local")
        sizes = len(schedule.get_loops(result)), len(found.reduced)
        by_rows(schedule, [found.block], sizes, result, lanes, beside)
        return schedule


def _first_that_holds(
    schedule: Callable[[bool], s_tir.Schedule | None],
) -> s_tir.Schedule | None:
    """The schedule with rows beside each other in a block, or else with one.

    The rows of the last block may not be those of the others, by sizes that are unknown, and TVM
    cannot leave out a part of them.
    """
    for beside in (True, False):
        try:
            return schedule(beside)
        except s_tir.ScheduleError:
            continue
    return None


def by_rows(
    schedule: s_tir.Schedule,
    reductions: Sequence[SBlockRV],
    axes: tuple[int, int],
    last: SBlockRV,
    lanes: int,
    beside: bool = True,
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
    beside : bool
        Whether a block has as many rows as it has warps.
    """
    loops, (at, reduced) = schedule.get_loops(last), axes
    # A single row has no loop over rows.
    rows = schedule.fuse(*loops[:at]) if at else schedule.add_unit_loop([*loops, last][0])
    blocks, row = schedule.split(rows, [None, _THREADS // lanes if beside else 1])
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


def _with_kept(rows: ComputedRows, lanes: int) -> s_tir.Schedule:
    """The schedule, in which threads of a row keep what is computed in front of its reductions."""
    if not rows.kept:
        return rows.schedule
    schedule = rows.schedule
    row = schedule.get_loops(rows.last)[1]
    for each in reversed(rows.kept):
        schedule.compute_at(each, row, preserve_unit_loops=True)
        schedule.set_scope(each, 0, "local")
        _by_lanes(schedule, schedule.get_loops(each)[-len(rows.row) :], lanes)
    computes_rows = len(schedule.get_loops(rows.last)) > 2
    for each in (*rows.kept, *rows.reductions, *([rows.last] if computes_rows else [])):
        schedule.unroll(schedule.get_loops(each)[-1])
    # NVIDIA's compiler unrolls; TVM's text of it would be long.
    schedule.annotate(row, "pragma_unroll_explicit", 0)
    buffers = [schedule.get(each).writes[0].source for each in rows.kept]
    function = keep_own_elements(schedule.mod["main"], buffers, rows.row, lanes)
    return s_tir.Schedule(function)
