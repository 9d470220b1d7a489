"""Terms of costs that implementations for CPUs share: workers, and what they compute."""

from __future__ import annotations

from typing import Any

from tvm_scatter.problem.reductions import FLOATS
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, smaller
from tvm_scatter.selection.work import Work

from . import loops
from .ordered import FEW_BYTES, LEAST_BLOCK_BYTES
from .values import HALF

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
#: Cycles to look at the counter of a place, the bytes that are set, counted and read of it, and
#: cycles to divide a sum.
_COUNTER_CYCLES, _COUNTER_BYTES, _DIVIDE_CYCLES = 1.0, 12.0, 4.0
#: Bytes of a line of the cache.
LINE_BYTES = 64.0
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
    return work.batch * larger(work.slice * work.element / LEAST_BLOCK_BYTES, 1.0)


def threads(work: Work, number: float) -> Any:
    """Starting all workers so many times; they are not where there is little to do."""
    little = is_at_most(work.batch * work.count * work.slice, float(loops.SERIAL_WORK))
    return work.launches(number * choose(little, _ONE_THREAD, 1.0))


def listed(work: Work) -> Any:
    """Items with an index of their own: batches that share their indices share these."""
    sizes: Any = work
    return loops.item_count(work.problem, sizes)


def keys(work: Work) -> Any:
    """Places that such items have."""
    sizes: Any = work
    return loops.key_count(work.problem, sizes)


def find(work: Work, items: Any, workers: Any) -> Any:
    """Finding the destinations of so many items, divided among workers."""
    return work.cycles(items * _FIND_CYCLES) / workers


def find_in_share(work: Work, divided: Any, workers: Any) -> Any:
    """Finding the destinations of all items that are in a worker's own share of the places.

    If places are divided, every worker looks at every index, and often in vain.
    """
    return find(work, work.items, choose(divided, _IN_VAIN, workers))


def combine(work: Work, workers: Any) -> Any:
    """Combining all updates but extremes of floats, divided among workers."""
    if is_extreme_of_floats(work):
        return 0.0
    started = 2 if _starts_apart(work) else 1
    return (started * combine_rows(work, work.items) + convert(work, work.items)) / workers


def extremes(work: Work, workers: Any) -> Any:
    """Choosing the smaller or larger of two floats for all updates, divided among workers."""
    if not is_extreme_of_floats(work):
        return 0.0
    return work.cycles(work.items * work.width * _EXTREME_CYCLES) / workers


def _starts_apart(work: Work) -> bool:
    """Whether each update first writes where a reduction without the data starts."""
    problem = work.problem
    return not (problem.unique or problem.include_self or problem.reduces.is_store)


def combine_rows(work: Work, rows: Any) -> Any:
    return work.cycles(rows * larger(work.row_bytes / 16, 1.0) * _COMBINE_CYCLES)


def convert(work: Work, rows: Any) -> Any:
    """Converting rows of 16-bit floats to float32, and back."""
    if work.problem.data_dtype not in HALF or work.problem.reduces.is_store:
        return 0.0
    return work.cycles(rows * work.width)


def is_extreme_of_floats(work: Work) -> bool:
    return work.problem.reduces.is_extreme and work.problem.data_dtype in FLOATS


def counts(work: Work, workers: Any) -> Any:
    """Counting the updates of each place of a mean, and looking at all counters behind them."""
    if work.problem.unique or not work.problem.reduces.needs_count:
        return 0.0
    places = keys(work)
    looked = work.cycles(places * _COUNTER_CYCLES) + work.streams(places * _COUNTER_BYTES)
    return looked + work.cycles(work.touched * work.width * _DIVIDE_CYCLES) / workers


def again_soon(work: Work, workers: Any) -> Any:
    """Updates of the most frequent places, each of which waits for the one before it."""
    if work.problem.unique or work.problem.reduces.is_store:
        return 0.0
    narrow = smaller(LINE_BYTES / larger(work.row_bytes, 1.0), 1.0)
    return work.cycles(work.hottest * work.lines * _AGAIN_CYCLES) * narrow / workers


def shared_lines(work: Work) -> Any:
    """Unique updates by all workers of an output that is in the cache of each of them."""
    bounced = 1.0 - work.missed(work.data_bytes)
    return work.cycles(work.items * _SHARED_LINE_CYCLES) * bounced / cores(work)
