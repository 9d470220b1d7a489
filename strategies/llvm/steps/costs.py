"""Terms of costs that implementations for CPUs share."""

from __future__ import annotations

from typing import Any

from tvm_scatter.problem.reductions import FLOATS
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, smaller
from tvm_scatter.selection.work import Terms, Work

from . import loops
from .ordered import FEW_BYTES
from .values import HALF

#: Bytes of the smallest block of columns, which one worker updates at a time.
_BLOCK_BYTES = 128.0
#: Cycles to find a destination, to combine a vector of 16 bytes there, and to choose the smaller or
#: larger of two floats, of which NaNs and zeros have an order.
_FIND_CYCLES, _COMBINE_CYCLES, _EXTREME_CYCLES = 5.0, 1.0, 4.0
#: Cycles to write to a line of the cache that another worker has written to.
_SHARED_LINE_CYCLES = 50.0
#: How much faster than to find a destination it is to see that it is another worker's: less than 1,
#: because it can not be predicted.
_IN_VAIN = 0.3
#: Cycles from a store to the next read of the same place, and what is added in between.
_AGAIN_CYCLES = 8.0
#: Cycles to look at a counter of a place.
_COUNTER_CYCLES = 1.0
#: The part of the time of combining that is left where sums stay in registers, and the bytes of a
#: row that do so.
_IN_REGISTERS, _REGISTER_BYTES = 0.5, 1024
#: The share of a miss's time that a core waits for if others wait too: it has several under way.
_ALONE = 0.25
#: What a byte from a cache takes, as a part of one from memory.
_CACHED = 0.25
#: Bytes of a line of the cache, and those behind which a row is read by itself, without a wait.
_LINE_BYTES, _AHEAD_BYTES = 64.0, 4096.0
#: What a call takes where one thread does everything, as a part of starting all of them.
_ONE_THREAD = 0.01


def cores(work: Work) -> float:
    """Workers."""
    return float(work.machine.multiprocessors)


def lines(work: Work) -> Any:
    """Workers that batches and blocks of columns give work to."""
    return smaller(_shares(work), owners(work))


def divides_places(work: Work) -> Any:
    """Whether there are too few batches and blocks of columns for all workers."""
    return is_at_most(_shares(work) + 0.5, owners(work))


def owners(work: Work) -> Any:
    """Workers that own a part of the output."""
    return choose(is_at_most(work.data_bytes, float(FEW_BYTES)), 1.0, cores(work))


def _shares(work: Work) -> Any:
    return work.batch * larger(work.slice * work.element / _BLOCK_BYTES, 1.0)


def threads(work: Work, number: float) -> Any:
    """Starting all workers so many times; they are not where there is little to do."""
    little = is_at_most(work.batch * work.count * work.slice, float(loops.SERIAL_WORK))
    return work.launches(number * choose(little, _ONE_THREAD, 1.0))


def listed(work: Work) -> Any:
    """Items with an index of their own: batches that share their indices share these."""
    return work.count * _index_lines(work)


def keys(work: Work) -> Any:
    """Places that such items have."""
    return work.extent * _index_lines(work)


def _index_lines(work: Work) -> Any:
    problem = work.problem
    return (work.batch if problem.index_batch else 1.0) * (
        work.slice if problem.index_slice else 1.0
    )


def find(work: Work, items: Any, workers: Any) -> Any:
    """Finding the destinations of so many items, divided among workers."""
    return work.cycles(items * _FIND_CYCLES) / workers


def find_in_share(work: Work, divided: Any, workers: Any) -> Any:
    """Finding the destinations of all items that are in a worker's own share of the places.

    If places are divided, every worker looks at every index, and often in vain.
    """
    return find(work, work.items, choose(divided, _IN_VAIN, workers))


def combine(work: Work, workers: Any, extremes: bool = False) -> Any:
    """Combining all updates, divided among workers: extremes of floats, or anything else."""
    if _is_extreme_of_floats(work) != extremes:
        return 0.0
    if extremes:
        return work.cycles(work.items * work.width * _EXTREME_CYCLES) / workers
    started = 2 if _starts_apart(work) else 1
    return (started * _combine(work, work.items) + _halves(work, work.items)) / workers


def _starts_apart(work: Work) -> bool:
    """Whether each update first writes where a reduction without the data starts."""
    problem = work.problem
    return not (problem.unique or problem.include_self or problem.reduces.is_store)


def counts(work: Work, workers: Any) -> Any:
    """Counting the updates of each place of a mean, and looking at all counters behind them."""
    if work.problem.unique or not work.problem.reduces.needs_count:
        return 0.0
    places, divided = keys(work), work.cycles(work.touched * work.width * 4)
    looked = work.cycles(places * _COUNTER_CYCLES) + work.streams(3 * 4 * places)
    return looked + divided / workers


def again_soon(work: Work, workers: Any) -> Any:
    """Updates of the most frequent places, each of which waits for the one before it."""
    if work.problem.unique or work.problem.reduces.is_store:
        return 0.0
    narrow = smaller(_LINE_BYTES / larger(work.row_bytes, 1.0), 1.0)
    return work.cycles(work.hottest * work.lines * _AGAIN_CYCLES) * narrow / workers


def _halves(work: Work, rows: Any) -> Any:
    """Converting rows of 16-bit floats to float32, and back."""
    if work.problem.data_dtype not in HALF or work.problem.reduces.is_store:
        return 0.0
    return work.cycles(rows * work.width)


def shared_lines(work: Work) -> Any:
    """Unique updates by all workers of an output that is in the cache of each of them."""
    bounced = 1.0 - work.missed(work.data_bytes)
    return work.cycles(work.items * _SHARED_LINE_CYCLES) * bounced / cores(work)


def _combine(work: Work, rows: Any) -> Any:
    return work.cycles(rows * larger(work.row_bytes / 16, 1.0) * _COMBINE_CYCLES)


def _is_extreme_of_floats(work: Work) -> bool:
    return work.problem.reduces.is_extreme and work.problem.data_dtype in FLOATS


def misses(work: Work, workers: Any, items: Any, footprint: Any) -> Any:
    """Rows of a tensor of so many bytes that are in no cache when they are needed, in no order.

    A worker waits for the first line of a row; those behind it are on their way then.
    """
    waits = larger(work.row_bytes / _AHEAD_BYTES, 1.0)
    return work.misses(items * waits, footprint) * _ALONE * cores(work) / workers


def rows_of_output(work: Work, places_are_divided: Any = False) -> Any:
    """Bytes of the output that one worker updates in no order: one batch after the other."""
    shares = choose(places_are_divided, cores(work), lines(work))
    return work.data_bytes / larger(shares, work.batch)


def rows_apart(work: Work, workers: Any, footprint: Any) -> Any:
    """Reading and writing rows of the output in no order, as far as they are in no cache."""
    moved = 2 * work.items * larger(work.row_bytes, _LINE_BYTES)
    waits = misses(work, workers, work.items, footprint)
    return waits + work.streams(moved) * work.missed(footprint)


def in_order(work: Work, workers: Any) -> Terms:
    """Reducing updates in the order of their destinations, each of which is written once."""
    # Of plain updates of one place only the last is read.
    rows = work.touched if work.problem.reduces.is_store else work.items
    apart = misses(work, workers, rows, work.update_bytes)
    if work.problem.fused:
        # Rows are read from anywhere in any order of the updates. But where they are is read in
        # order elsewhere: an index of the size of this one. And blocks of columns of one row are
        # read one after the other elsewhere.
        leaves = _ALONE * work.misses(rows, work.index_bytes)
        apart = (1 - _in_one_block(work)) * apart + leaves
    # Updates that are apart move a line of the cache each.
    line = _LINE_BYTES * work.missed(work.update_bytes)
    return {
        "streams": work.streams(work.copied_bytes + work.index_bytes) + again(work),
        "rows": work.streams(_read_bytes(work, rows * larger(work.row_bytes, line))),
        # Batches that share an index are visited one after the other for each place.
        "batches": work.cycles(rows) / workers if work.problem.shares_index else 0.0,
        "misses": apart,
        "updates": _combine_in_registers(work, workers, rows),
    }


def _combine_in_registers(work: Work, workers: Any, rows: Any) -> Any:
    """Combining rows of updates that follow each other by destination, divided among workers."""
    factor = 2.0 if _is_extreme_of_floats(work) else 1.0
    factor = factor * (1 - (1 - _IN_REGISTERS) * _in_one_block(work))
    return (factor * _combine(work, rows) + _halves(work, rows)) / workers


def _in_one_block(work: Work) -> Any:
    """The part of a row whose sums stay in registers. The others are read in blocks of columns."""
    row = larger(work.row_bytes, 1.0)
    return smaller(row, _REGISTER_BYTES) / row


def again(work: Work) -> Any:
    """Reading and writing the touched rows of the output, which may have been copied before."""
    if work.problem.fill:
        return 0.0
    elsewhere = 1.0 if work.problem.in_place else work.missed(work.data_bytes)
    return work.streams(2 * work.touched * work.row_bytes) * elsewhere


def moved(work: Work) -> Any:
    """Copying the data or else reading and writing what changes of it, and reading the operands."""
    there = again(work) if work.problem.in_place else 0.0
    operands = work.index_bytes + _read_bytes(work, work.update_bytes)
    return work.streams(work.copied_bytes + operands) + there


def _read_bytes(work: Work, updates: Any) -> Any:
    """Bytes that so many bytes of updates take from memory.

    Messages are made of rows of a table that is about as large as the output: nodes are sources as
    well as destinations. A row that is read again is in some cache.
    """
    if not work.problem.fused:
        return updates
    first = smaller(updates, work.data_bytes)
    return first + _CACHED * (updates - first)
