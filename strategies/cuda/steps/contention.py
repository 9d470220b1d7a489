"""How long updates in the memory of a GPU hold each other up. Cycles are those of an H200."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_scatter.problem.reductions import FLOATS, HALVES, Rounding
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.problem.vectors import needs_swaps
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, logarithm, smaller
from tvm_scatter.selection.work import LINE_BYTES, SECTOR_BYTES, Work

_WARP = 32
#: Outputs of at most so many bytes, about, are written in the caches of multiprocessors.
_SMALL_BYTES = 65536.0
#: Lines to which a multiprocessor gathers what it stores, between 8 and 13; cycles for a sector of
#: what is gathered, and for one of a line if it is not.
_GATHERED_LINES, _GATHERED_CYCLES, _TURN_CYCLES = 10.0, 0.055, 4.2
#: Some is gathered in up to as many lines; cycles for a sector of a line where nothing is.
_FEW_LINES, _APART_CYCLES = 32.0, 24.0
#: Cycles for which a line is combined with, a sector at a time, or looked at by a warp.
_LINE_CYCLES = 4.0
#: How many times that is for integers of 64 bits.
_WIDE_LINE = 2.0
#: Parts of the cache that serve the lines of one row, at most.
_ROW_LINES = 16.0
#: Cycles for which a loop of compare-and-swap that failed holds up the next one; of one that seldom
#: fails, for each line of a row.
_RETRY_CYCLES, _SELDOM_CYCLES = 400.0, 16.0
#: Cycles more where neighbours of a row are in one word, which one of them always changes.
_NEIGHBOUR_CYCLES = 150.0
#: The more are under way, the more often they fail: cycles more for each, up to so many.
_CROWD_CYCLES, _MOST_RETRY_CYCLES = 0.05, 10000.0
#: Cycles for which a loop holds up the others of its line, and one that seldom fails.
_SWAP_LINE_CYCLES, _SELDOM_LINE_CYCLES = 120.0, 25.0
#: The first updates have all read the same, and get in each other's way even if later ones seldom
#: do. Cycles of each of so many: of those of a place, and of a line if they look first, by an
#: instruction or by a loop.
_FIRST_RETRY_CYCLES, _FIRST_RETRIES = 100.0, 400.0
_FIRST_CYCLES, _FIRST = 10.0, 3000.0
_FIRST_LOOP_CYCLES, _LOOP_LINE_CYCLES = 50.0, 20.0
#: Cycles of a multiprocessor for an extreme or a product of two 16-bit floats.
_HALF_CYCLES = 0.4
#: Of the items under way the part that is so before an extreme is seen; cycles of a look that sees.
_BEFORE_SEEN, _SEEN_CYCLES = 0.1, 0.1


def in_memory(work: Work, together: int = 1) -> Any:
    """Cycles for which updates of one place, or of one line of the cache, wait for each other.

    Parameters
    ----------
    together : int
        Elements that one instruction combines.
    """
    single, line_cycles = work.problem.width.is_one, _LINE_CYCLES
    at_a_place = _at_hottest(work) * meeting(work, together)
    if looks_first(work.problem):
        # Those that are under way before the first result is seen, and looks of all others. A batch
        # begins as a whole.
        early = _under_way(work) * _BEFORE_SEEN / larger(work.hottest, 1.0)
        seen = _at_hottest(work) * smaller(early, 1.0)
        at_a_place = seen * meeting(work, together) + _SEEN_CYCLES * _at_hottest(work)
    if stores(work.problem):
        # What is stored to a small output meets in a multiprocessor's own cache.
        small = is_at_most(work.data_bytes, _SMALL_BYTES)
        return _stores_at_a_line(work) + choose(small, 0.0, at_a_place)
    rows = work.items * larger(work.row_bytes / LINE_BYTES, 1.0)
    met = _met_by_warps(work) if single else rows
    at_a_line = met / _lines(work)
    first = 0.0
    if single:
        line_cycles = of_sums(work)
        if line_cycles == _LINE_CYCLES and work.problem.data_dtype in ("int64", "uint64"):
            line_cycles *= _WIDE_LINE
    if looks_first(work.problem):
        loops = needs_swaps(work.problem)
        line_cycles = _LOOP_LINE_CYCLES if loops else _LINE_CYCLES
        first = (_FIRST_LOOP_CYCLES if loops else _FIRST_CYCLES) * smaller(at_a_line, _FIRST)
    elif seldom_retries(work.problem):
        first = _FIRST_RETRY_CYCLES * smaller(larger(work.hottest - 1.0, 0.0), _FIRST_RETRIES)
    elif needs_swaps(work.problem) and single:
        crowd = smaller(_CROWD_CYCLES * _at_hottest(work), _MOST_RETRY_CYCLES)
        at_a_place = at_a_place + crowd * _at_hottest(work)
    return first + larger(at_a_place, at_a_line * line_cycles)


def of_sums(work: Work) -> Any:
    """Cycles for which the sum of one element holds up the others of its line."""
    if not needs_swaps(work.problem):
        return _LINE_CYCLES
    return _SELDOM_LINE_CYCLES if seldom_retries(work.problem) else _SWAP_LINE_CYCLES


def combining(work: Work) -> Any:
    """The time for which threads combine what they have read, where that is longer than reading.

    Extremes and products of 16-bit floats are converted, and compared with regard to NaN.
    """
    problem = work.problem
    sums = problem.reduces.rounding is not Rounding.PRODUCT and not problem.reduces.is_extreme
    if stores(problem) or sums or problem.data_dtype not in HALVES:
        return 0.0
    return work.cycles(_HALF_CYCLES * work.update_size / work.machine.multiprocessors)


def of_numbers(work: Work, dtype: str) -> Any:
    """The same where each item adds a number of its own to one of its place, such as a count."""
    problem = replace(work.problem, data_dtype=dtype, reduction="add", in_place=True)
    if not problem.index_slice:
        problem = replace(problem, slice=SymbolicSize())
    each = {"width": 1.0, "data_size": work.destinations, "update_size": work.items}
    columns = work.slice if problem.index_slice else 1.0
    return in_memory(replace(work, problem=problem, slice=columns, **each))


def of_stores(work: Work) -> Any:
    """The same where the elements of updates are stored, one by a thread."""
    problem = replace(work.problem, reduction="update", index_slice=True)
    each = {"items": work.items * work.width, "width": 1.0, "destinations": work.data_size}
    return in_memory(replace(work, problem=problem, **each))


def meeting(work: Work, together: int = 1) -> Any:
    """Cycles for which an update of a place holds up the next one."""
    operations = smaller(work.width, LINE_BYTES / work.element) / together
    if stores(work.problem):
        single = work.problem.width.is_one
        return 0.17 + 0.34 / work.element if single else 0.2 + 0.1 * operations
    if looks_first(work.problem):
        return 0.5 + 0.1 * operations
    lines = smaller(larger(work.row_bytes / LINE_BYTES, 1.0), _ROW_LINES)
    # Single integers take half of what floats do.
    whole = work.problem.width.is_one and work.problem.data_dtype not in FLOATS
    return (2.5 + 1.5 * lines) * (0.5 if whole else 1.0) + _retries(work, lines)


def writes(work: Work) -> Any:
    """Items whose update changes memory. Minima and maxima look first, and seldom write.

    Of n values in any order, the expected number of new maxima is the n-th harmonic number
    (Knuth, The Art of Computer Programming, volume 1, section 1.2.10).
    """
    if not looks_first(work.problem):
        # Half of the truth values change nothing.
        return work.items * (0.5 if work.problem.data_dtype == "bool" else 1.0)
    each = work.items / larger(work.destinations, 1.0)
    settled = work.destinations * (1 + logarithm(1 + each))
    return smaller(work.items, settled + _under_way(work))


def stores(problem: ScatterProblem) -> bool:
    """Whether updates are stored. Truth values are: a sum or product of them only sets one."""
    return problem.only_stores or problem.data_dtype == "bool"


def looks_first(problem: ScatterProblem) -> bool:
    """Whether an update that changes nothing is not written."""
    return problem.reduces.is_extreme and not stores(problem)


def seldom_retries(problem: ScatterProblem) -> bool:
    """Whether most loops of compare-and-swap find their place as they left it.

    Products of floats do, because they are measured on factors of 1 and -1.
    """
    return problem.reduces.rounding is Rounding.PRODUCT and problem.data_dtype in FLOATS


def _retries(work: Work, lines: Any) -> Any:
    """Cycles that an update loses to others of its place: a loop that fails begins again."""
    problem = work.problem
    if not needs_swaps(problem):
        return 0.0
    in_a_word = max(4.0 / work.element, 1.0)
    if seldom_retries(problem):
        if problem.width.is_one:
            return 0.0
        return _SELDOM_CYCLES * lines + (_NEIGHBOUR_CYCLES if in_a_word > 1 else 0.0)
    # So do neighbours in a word.
    return _RETRY_CYCLES * (1.0 if problem.width.is_one else in_a_word)


def _under_way(work: Work) -> Any:
    """Items that all threads of the machine work on at a time."""
    threads = work.machine.multiprocessors * work.machine.threads
    return threads * work.vector / larger(work.width, 1.0)


def rounds(work: Work) -> Any:
    """How often batches wait for others, because not all are under way at once."""
    together = larger(_under_way(work) * work.batch / larger(work.items, 1.0), 1.0)
    return larger(work.batch / together, 1.0)


def _at_hottest(work: Work) -> Any:
    """Updates of the hottest place that go to memory one after the other."""
    found = work.hottest * rounds(work) * _batches_of_line(work)
    if work.problem.index_slice:
        # Where rows are hot, those of other columns lie beside it: in a line, or in a word.
        swaps = needs_swaps(work.problem) and not looks_first(work.problem)
        near = max(4.0 / work.element, 1.0) if swaps else LINE_BYTES / work.element
        found = found * smaller(work.slice, near)
    return found


def _lines(work: Work) -> Any:
    """Lines of the cache that hold the part of the data that is updated at a time."""
    return larger(work.data_bytes / rounds(work) / LINE_BYTES, 1.0)


def warp_sectors(work: Work, items_of_batch: Any = None) -> Any:
    """Sectors that warps access for single elements: of those of a warp each once.

    A warp has neighbours, so it reaches no more than the columns and the batches that they are in.

    Parameters
    ----------
    items_of_batch : optional
        Neighbours that are in one batch; by default all of its items.
    """
    if items_of_batch is None:
        items_of_batch = work.items / larger(work.batch, 1.0)
    return _of_warps(work, _reach(work, items_of_batch))


def _reach(work: Work, items_of_batch: Any) -> Any:
    """Sectors with places to which the items of a warp may go."""
    columns = larger(smaller(work.slice, float(_WARP)) * work.element / SECTOR_BYTES, 1.0)
    batch = smaller(work.extent * work.slice * work.element / SECTOR_BYTES, work.extent * columns)
    near = larger(batch * smaller(1.0 + _WARP / larger(items_of_batch, 1.0), work.batch), 1.0)
    return smaller(_lines(work) * (LINE_BYTES / SECTOR_BYTES), near)


def _of_warps(work: Work, reach: Any) -> Any:
    """Items of all warps, those of a warp that have one of the places that it reaches once."""
    return work.batch * work.count * work.slice * reach / (reach + _WARP)


def _met_by_warps(work: Work) -> Any:
    """Sectors where lanes of a warp that have one place take turns; lines if they only look."""
    if looks_first(work.problem):
        reach = _reach(work, work.items / larger(work.batch, 1.0))
        return _of_warps(work, larger(reach * SECTOR_BYTES / LINE_BYTES, 1.0))
    places = smaller(work.extent * smaller(work.slice, float(_WARP)), SECTOR_BYTES / work.element)
    return larger(warp_sectors(work), work.items / larger(places, 1.0))


def _batches_of_line(work: Work) -> Any:
    """Batches under way at a time whose places are in one line of the cache."""
    if work.problem.batch.is_one:
        return 1.0
    batch = larger(work.extent * work.slice * work.element, 1.0)
    return larger(smaller(LINE_BYTES / batch, work.batch / rounds(work)), 1.0)


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
    apart = smaller(_TURN_CYCLES / _FEW_LINES, _APART_CYCLES / lines)
    alone = warp_sectors(work) * larger(_TURN_CYCLES / lines, apart)
    return choose(is_at_most(lines, _GATHERED_LINES), gathered, alone)
