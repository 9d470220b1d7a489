"""Terms of costs that implementations for CPUs share."""

from __future__ import annotations

from typing import Any

from tvm_scatter.problem.reductions import FLOATS
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.work import Work

#: Bytes of the smallest block of columns, which one worker updates at a time.
_BLOCK_BYTES = 128.0
#: Cycles to find a destination, and to combine a vector of 16 bytes there.
_FIND_CYCLES, _COMBINE_CYCLES = 5.0, 1.0
#: How many times as long a minimum or maximum of floats takes: NaNs and zeros have an order.
_EXTREME_IN_MEMORY, _EXTREME_IN_REGISTERS = 3.0, 2.0
#: The part of the time of combining that is left where sums stay in registers, and the bytes of a
#: row that do so.
_IN_REGISTERS, _REGISTER_BYTES = 0.5, 1024
#: The share of a miss's time that a core waits for if others wait too: it has several under way.
ALONE = 0.25


def cores(work: Work) -> float:
    """Workers."""
    return float(work.machine.multiprocessors)


def lines(work: Work) -> Any:
    """Workers that batches and blocks of columns give work to."""
    columns = larger(work.slice * work.element / _BLOCK_BYTES, 1.0)
    return smaller(work.batch * columns, cores(work))


def find(work: Work, workers: Any) -> Any:
    """Finding all destinations, divided among workers."""
    return work.cycles(work.items * _FIND_CYCLES) / workers


def combine(work: Work, workers: Any) -> Any:
    """Combining all updates, divided among workers."""
    factor = _EXTREME_IN_MEMORY if _is_extreme_of_floats(work) else 1.0
    return factor * _combine(work, work.items) / workers


def combine_in_registers(work: Work, workers: Any, rows: Any) -> Any:
    """Combining rows of updates that follow each other by destination, divided among workers."""
    factor = _EXTREME_IN_REGISTERS if _is_extreme_of_floats(work) else 1.0
    return factor * (1 - (1 - _IN_REGISTERS) * in_one_block(work)) * _combine(work, rows) / workers


def in_one_block(work: Work) -> Any:
    """The part of a row whose sums stay in registers. The others are read in blocks of columns."""
    row = larger(work.row_bytes, 1.0)
    return smaller(row, _REGISTER_BYTES) / row


def start(work: Work, workers: Any) -> Any:
    """Writing where a reduction without the data starts, at each update; and dividing by counts."""
    problem = work.problem
    if problem.unique or problem.include_self or problem.reduces.is_store:
        return 0.0
    divided = work.touched if problem.reduces.needs_count else 0.0
    return (_combine(work, work.items) + _combine(work, divided)) / workers + find(work, workers)


def _combine(work: Work, rows: Any) -> Any:
    return work.cycles(rows * larger(work.row_bytes / 16, 1.0) * _COMBINE_CYCLES)


def _is_extreme_of_floats(work: Work) -> bool:
    return work.problem.reduces.is_extreme and work.problem.data_dtype in FLOATS


def misses(work: Work, workers: Any, footprint: Any = None) -> Any:
    """Rows of a tensor that are in no cache when they are needed, in no order.

    By default these are rows of the output, and a worker goes over a block of columns of one batch
    at a time. A worker waits for the first sector of a block; the next ones are on their way then.
    """
    if footprint is None:
        footprint = work.extent * smaller(work.row_bytes, _BLOCK_BYTES)
    blocks = larger(work.row_bytes / _BLOCK_BYTES, 1.0)
    missed = work.misses(work.items * blocks, footprint)
    return missed * ALONE * cores(work) / workers


def again(work: Work) -> Any:
    """Reading and writing the touched rows of an output that has been copied as a whole before."""
    if work.problem.in_place or work.problem.fill:
        return 0.0
    return work.streams(2 * work.touched * work.row_bytes) * work.missed(work.data_bytes)
