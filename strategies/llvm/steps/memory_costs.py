"""Terms of costs that implementations for CPUs share: what comes from memory, or from a cache."""

from __future__ import annotations

from typing import Any

from tvm_scatter.selection.arithmetic import choose, larger, smaller
from tvm_scatter.selection.work import Work

from .costs import LINE_BYTES, cores, lines

#: The share of a miss's time that a core waits for if others wait too: it has several under way.
ALONE = 0.25
#: What a byte from a cache takes, as a part of one from memory.
_CACHED = 0.25
#: Bytes of a row behind which it is read ahead, so that nobody waits.
_AHEAD_BYTES = 4096.0


def moved(work: Work) -> Any:
    """Copying the data or else reading and writing what changes of it, and reading the operands."""
    there = again(work) if work.problem.in_place else 0.0
    operands = work.index_bytes + read_bytes(work, work.update_bytes)
    return work.streams(work.copied_bytes + operands) + there


def again(work: Work) -> Any:
    """Reading and writing the touched rows of the output, which may have been copied before."""
    if work.problem.fill:
        return 0.0
    elsewhere = 1.0 if work.problem.in_place else work.missed(work.data_bytes)
    return work.streams(2 * work.touched * work.row_bytes) * elsewhere


def read_bytes(work: Work, updates: Any) -> Any:
    """Bytes that so many bytes of updates take from memory.

    Messages are made of rows of a table that is about as large as the output: nodes are sources as
    well as destinations. A row that is read again is in some cache.
    """
    if not work.problem.fused:
        return updates
    first = smaller(updates, work.data_bytes)
    return first + _CACHED * (updates - first)


def misses(work: Work, workers: Any, items: Any, footprint: Any) -> Any:
    """Rows of a tensor of so many bytes that are in no cache when they are needed, in no order.

    A worker waits for the first line of a row; those behind it are on their way then.
    """
    waits = larger(work.row_bytes / _AHEAD_BYTES, 1.0)
    return work.misses(items * waits, footprint) * ALONE * cores(work) / workers


def rows_of_output(work: Work, places_are_divided: Any = False) -> Any:
    """Bytes of the output that one worker updates in no order: one batch after the other."""
    shares = choose(places_are_divided, cores(work), lines(work))
    return work.data_bytes / larger(shares, work.batch)


def rows_apart(work: Work, workers: Any, footprint: Any) -> Any:
    """Reading and writing rows of the output in no order, as far as they are in no cache."""
    moved = 2 * work.items * larger(work.row_bytes, LINE_BYTES)
    waits = misses(work, workers, work.items, footprint)
    return waits + work.streams(moved) * work.missed(footprint)
