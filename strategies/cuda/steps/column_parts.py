"""Columns in parts: all rows' first columns, then all rows' next ones.

Rows that are read by index from a tensor larger than the second-level cache come from memory again
and again. Of the first columns of all rows the cache holds more, or all.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tvm import tirx

from tvm_scatter.emit.computed_updates import ComputedUpdates, loads_of
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import at_least, ceil_div
from tvm_scatter.selection.work import LINE_BYTES
from tvm_scatter.strategies.cuda.machines import machine_of

#: Of the cache the part that a tensor may take. An H100's is two halves, each of which holds a copy
#: of what its side reads: 25.6 MB gain nothing by parts, 51 MB take 0.75 of the time in two.
_OF_CACHE = 0.55
#: Bytes of a row in a part: shorter ones read too much beside.
_LEAST_BYTES = 128
#: The fewest columns of a part of a row that has several, whoever divides it: a warp has 32, or at
#: least half as many where groups of threads share some and a few threads have none.
LEAST_COLUMNS = 16
#: Threads that have columns, of all, above which their number stays a power of two. Others reach
#: from one warp into the next: with 0.81 they gain nothing, with 0.78 up to 4 %, with 0.69 13 %.
_BUSY = 0.8
#: Bytes that a thread reads of an update, if its vectors are long enough, or it can have several.
_ACCESS_BYTES = 16
#: Elements of vectors of which a thread has several; with 4 of 16 bits it takes 1.08 of the time.
_SHORT_VECTOR = 2
#: The fewest threads that share a row of which each has several vectors: with 5 it takes up to 1.1
#: of the time, with 8 and more 0.45 to 0.95.
_LEAST_LANES = 8
#: Times that a row must be read, at least; and where each part computes a softmax of its own: of 3
#: reads that took 1.10 of the time, of 10 it takes 0.94.
_LEAST_READS, _LEAST_READS_OF_SOFTMAX = 2, 5


def parts_of(width: Any, lanes: int, vector: int) -> Any:
    """The parts into which the columns of rows are divided.

    At least 1, because the device divides by it, and a symbolic width may be 0.
    """
    return at_least(ceil_div(width, lanes * vector), 1)


def busy_lanes(width: Any, lanes: int, vector: int) -> int:
    """The threads for a row: ``lanes``, or fewer where many of these would be without columns.

    A row of 80 floats has 20 vectors: of 32 threads 12 would have none.
    """
    if not isinstance(width, int):
        return lanes
    vectors = max(ceil_div(width, vector), 1)
    parts = ceil_div(vectors, lanes)
    return ceil_div(vectors, parts) if vectors < _BUSY * lanes * parts else lanes


def columns_each(problem: ScatterProblem, width: Any, vector: int) -> int:
    """The vectors of a row that each thread has, so that it reads enough of an update.

    Rows of an odd number of elements have vectors of one element.
    """
    if not isinstance(width, int) or vector > _SHORT_VECTOR:
        return 1
    itemsize = item_bytes(problem.data_dtype)
    columns = min(_ACCESS_BYTES // (vector * itemsize), 4 if itemsize <= 2 else 2)
    while columns > 1 and width < _LEAST_LANES * vector * columns:
        columns //= 2
    return max(columns, 1)


def most_parts(width: Any) -> Any:
    """The most parts into which the columns of rows are divided, in whatever way."""
    return at_least(ceil_div(width, LEAST_COLUMNS), 1)


def lanes_of_parts(
    operands: Operands, lanes: int, vector: int, side_by_side: bool = False, least: int = 0
) -> tuple[int, bool]:
    """The threads that share a part of a row, and whether all first parts come before all others.

    Parameters
    ----------
    lanes, vector : int
        The threads that share a row, or a part, if all that is read is neighbours; and the elements
        that each has.
    side_by_side : bool
        Whether what is the same for all elements of a row is read side by side for the rows of a
        list: lists carry it, or updates stand in their order.
    least : int
        The fewest updates that there are, if their number is not known.
    """
    read, width = _bytes_read_by_index(operands.updates), operands.sizes.width
    items = operands.sizes.items if isinstance(operands.sizes.items, int) else least
    if not (read and isinstance(width, int)):
        return lanes, False
    row = width * item_bytes(operands.problem.data_dtype)
    if _stays_whole(row, width <= lanes * vector) or items * row < _least_reads(operands) * read:
        return lanes, False
    access = vector * item_bytes(operands.problem.data_dtype)
    most = _OF_CACHE * machine_of(operands.target).cache_bytes

    def part_of(count: int) -> float:
        return read * min(count * access / row, 1.0)

    fewer = lanes
    while part_of(fewer) > most and fewer // 2 * access >= _LEAST_BYTES:
        fewer //= 2
    # Lists are read once for each part, and so is what they name, which may be anywhere.
    if part_of(fewer) > most and not side_by_side:
        return lanes, False
    return fewer, fewer * vector < width


def parts_at_run_time(
    operands: Operands, lanes: int, vector: int, side_by_side: bool
) -> list[tuple[int, Any]]:
    """As :func:`lanes_of_parts` where the sizes at run time decide.

    Returns
    -------
    list of (int, condition)
        The threads that share a part of a row where first parts come before all others, and where
        that is better, the fewest threads first. None if it never is.
    """
    width = operands.sizes.width
    read = _sizes_read_by_index(operands.updates)
    if operands.problem.is_static or not (read and isinstance(width, int) and side_by_side):
        return []
    access = vector * item_bytes(operands.problem.data_dtype)
    row = width * item_bytes(operands.problem.data_dtype)
    most = int(_OF_CACHE * machine_of(operands.target).cache_bytes)
    if row == 0 or _stays_whole(row, width <= lanes * vector):
        return []
    largest = reduce(at_least, read)
    often = operands.sizes.items * row >= _least_reads(operands) * largest
    found: list[tuple[int, Any]] = [(lanes, often)] if lanes * vector < width else []
    fewer = lanes // 2
    while fewer * access >= _LEAST_BYTES:
        # Of parts that are twice as long the cache would hold too little.
        longer = min(2 * fewer * access, row)
        too_little = largest // row * longer > most
        if not isinstance(too_little, bool):
            found.insert(0, (fewer, tirx.And(often, too_little)))
        elif too_little:
            found = [(fewer, often)]
        fewer //= 2
    return found


def _stays_whole(row_bytes: int, is_one_part: bool) -> bool:
    """Whether a row is not divided because its parts would be no whole lines.

    They are asked for more often than memory is read less: rows of 100 floats take 1.17 to 1.33 of
    the time.
    """
    return bool(row_bytes % LINE_BYTES) and is_one_part


def _least_reads(operands: Operands) -> int:
    """Times that a row must be read for parts to pay."""
    return _LEAST_READS_OF_SOFTMAX if operands.problem.softmax else _LEAST_READS


def _bytes_read_by_index(updates: Any) -> int:
    """Bytes of the largest tensor whose rows the updates read by an index; 0 if they read none."""
    known = [int(size) for size in _sizes_read_by_index(updates) if isinstance(size, int)]
    return max(known, default=0)


def _sizes_read_by_index(updates: Any) -> list[Any]:
    """Bytes of each tensor whose rows the updates read by an index: numbers, or expressions."""
    if not isinstance(updates, ComputedUpdates):
        return []
    return [
        (int(size) if isinstance(size, tirx.IntImm) else size) * item_bytes(str(load.source.dtype))
        for each in updates.expressions
        for load in loads_of(each)
        if _is_row(load, updates)
        for size in [load.source.shape[0]]
    ]


def _is_row(load: Any, updates: ComputedUpdates) -> bool:
    """Whether a load is of a row, or a part of one, that another load names."""
    [position] = load.indices
    columns = set(updates.axes[1:]) & set(tirx.analysis.undefined_vars(position))
    return bool(columns) and any(True for _ in loads_of(position))
