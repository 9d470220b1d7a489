"""Terms of costs that implementations for CPUs share."""

from __future__ import annotations

from typing import Any

from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.work import Work

#: Bytes of the smallest block of columns, which one worker updates at a time.
_BLOCK_BYTES = 128.0
#: Cycles to find a destination, and to combine a vector of 16 bytes there.
_FIND_CYCLES, _COMBINE_CYCLES = 5.0, 1.0
#: The share of a miss's time that a core waits for if others wait too: it has several under way.
_ALONE = 0.25


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
    vectors = larger(work.row_bytes / 16, 1.0)
    return work.cycles(work.items * vectors * _COMBINE_CYCLES) / workers


def misses(work: Work, workers: Any, footprint: Any = None) -> Any:
    """Rows of a tensor that are in no cache when they are needed, in no order.

    By default these are rows of the output, and a worker goes over a block of columns of one batch
    at a time. A worker waits for the first sector of a block; the next ones are on their way then.
    """
    if footprint is None:
        footprint = work.extent * smaller(work.row_bytes, _BLOCK_BYTES)
    blocks = larger(work.row_bytes / _BLOCK_BYTES, 1.0)
    missed = work.misses(work.items * blocks, footprint)
    return missed * _ALONE * cores(work) / workers


def again(work: Work) -> Any:
    """Reading and writing the touched rows of an output that has been copied as a whole before."""
    if work.problem.in_place:
        return 0.0
    return work.streams(2 * work.touched * work.row_bytes) * work.missed(work.data_bytes)
