"""How long updates in the memory of a GPU hold each other up. Cycles are those of an H200."""

from __future__ import annotations

from typing import Any

from tvm_scatter.problem.reductions import FLOATS, Rounding
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.vectors import needs_swaps
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, logarithm, smaller
from tvm_scatter.selection.work import LINE_BYTES, SECTOR_BYTES, Work

#: Threads that a multiprocessor has at a time.
_THREADS = 2048
_WARP = 32
#: Outputs of at most so many bytes, about, are written in the caches of multiprocessors.
_SMALL_BYTES = 65536.0
#: Lines to which a multiprocessor gathers what it stores, between 8 and 13; cycles for a sector of
#: what is gathered, and for one of a line if it is not.
_GATHERED_LINES, _GATHERED_CYCLES, _TURN_CYCLES = 10.0, 0.055, 4.2
#: Cycles of a line for a sector of it that is looked at, or combined with.
_LOOK_CYCLES, _COMBINE_CYCLES = 2, 4
#: Parts of the cache that serve the lines of one row, at most.
_ROW_LINES = 16.0


def in_memory(work: Work, together: int = 1) -> Any:
    """Cycles for which updates of one place, or of one line of the cache, wait for each other.

    Parameters
    ----------
    together : int
        Elements that one instruction combines.
    """
    at_a_place = _at_hottest(work) * meeting(work, together)
    if work.problem.only_stores:
        # What is stored to a small output meets in a multiprocessor's own cache.
        small = is_at_most(work.data_bytes, _SMALL_BYTES)
        return _stores_at_a_line(work) + choose(small, 0.0, at_a_place)
    rows = work.items * larger(work.row_bytes / LINE_BYTES, 1.0)
    met = _warp_sectors(work) if work.problem.width.is_one else rows
    cycles = _LOOK_CYCLES if looks_first(work.problem) else _COMBINE_CYCLES
    return larger(at_a_place, met / _lines(work) * cycles)


def meeting(work: Work, together: int = 1) -> Any:
    """Cycles for which an update of a place holds up the next one."""
    operations = smaller(work.width, LINE_BYTES / work.element) / together
    if work.problem.only_stores:
        return 0.5 + 0.2 * operations
    if looks_first(work.problem):
        return 0.5 + 0.1 * operations
    lines = smaller(larger(work.row_bytes / LINE_BYTES, 1.0), _ROW_LINES)
    return 2.5 + 1.5 * lines + operations * _retry_cycles(work.problem)


def writes(work: Work) -> Any:
    """Items whose update changes memory. Minima and maxima look first, and seldom write.

    Of n values in any order, the expected number of new maxima is the n-th harmonic number
    (Knuth, The Art of Computer Programming, volume 1, section 1.2.10).
    """
    if not looks_first(work.problem):
        return work.items
    each = work.items / larger(work.destinations, 1.0)
    settled = work.destinations * (1 + logarithm(1 + each))
    return smaller(work.items, settled + _under_way(work))


def looks_first(problem: ScatterProblem) -> bool:
    """Whether an update that changes nothing is not written."""
    return problem.reduces.is_extreme and not problem.only_stores


def seldom_retries(problem: ScatterProblem) -> bool:
    """Whether most loops of compare-and-swap find their place as they left it.

    Products of floats do, because they are measured on factors of 1 and -1, and sums of bool soon
    change nothing.
    """
    product = problem.reduces.rounding is Rounding.PRODUCT
    return problem.data_dtype == "bool" or (product and problem.data_dtype in FLOATS)


def _retry_cycles(problem: ScatterProblem) -> float:
    """Cycles that an update loses to others of its place: a loop that fails begins again."""
    if not needs_swaps(problem) or looks_first(problem):
        return 0.0
    return 20.0 if seldom_retries(problem) else 400.0


def _under_way(work: Work) -> Any:
    """Items that all threads of the machine work on at a time."""
    return work.machine.multiprocessors * _THREADS * work.vector / larger(work.width, 1.0)


def rounds(work: Work) -> Any:
    """How often batches wait for others, because not all are under way at once."""
    together = larger(_under_way(work) * work.batch / larger(work.items, 1.0), 1.0)
    return larger(work.batch / together, 1.0)


def _at_hottest(work: Work) -> Any:
    """Updates of the hottest place that combine in memory one after the other.

    Of a minimum or maximum these are the ones under way before the first result is seen.
    """
    found = work.hottest * rounds(work)
    if work.problem.index_slice:
        # Where rows are hot, those of other columns lie beside it.
        found = found * smaller(work.slice, LINE_BYTES / work.element)
    return smaller(found, _under_way(work) / work.lines) if looks_first(work.problem) else found


def _lines(work: Work) -> Any:
    """Lines of the cache that hold the part of the data that is updated at a time."""
    return larger(work.data_bytes / rounds(work) / LINE_BYTES, 1.0)


def _warp_sectors(work: Work) -> Any:
    """Sectors that warps access for single elements: of those of a warp each once."""
    sectors = _lines(work) * (LINE_BYTES / SECTOR_BYTES)
    return work.items * sectors / (sectors + _WARP)


def _stores_at_a_line(work: Work) -> Any:
    """Cycles for which stores hold each other up because they go to few lines of the cache.

    A multiprocessor gathers what it stores to a few lines, and whole sectors; other stores to the
    sectors of a line take turns.
    """
    if work.problem.unique:
        return 0.0
    lines = _lines(work)
    gathered = work.items * work.row_sectors * smaller(_GATHERED_CYCLES, _TURN_CYCLES / lines)
    if not work.problem.width.is_one:
        return gathered
    alone = _TURN_CYCLES * _warp_sectors(work) / lines
    return choose(is_at_most(lines, _GATHERED_LINES), gathered, alone)
