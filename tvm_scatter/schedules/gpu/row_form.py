"""How a reduction of rows that are read by index is spread over the threads of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import moves
from tvm_scatter.lowering.row_reductions import RowReduction

from .gather_form import (
    FILLS_GPU,
    INT32_VALUES,
    MOST_IN_FLIGHT,
    MOST_NODES,
    ROUNDING,
    lanes_of,
    nodes_of,
)
from .gather_loads import without_loads

_WARP = 32
#: Accesses that a group of threads has time for, over those that the best group has.
_MOST_IDLE = 4 / 3


@dataclass(frozen=True)
class RowForm:
    """How the rows are spread.

    Attributes
    ----------
    lanes : int
        Elements that a thread reads by one access.
    group : int
        Threads that reduce a row together; a power of two.
    in_flight : int
        Accesses of a thread to a row that do not wait for each other.
    steps : int
        How often it makes so many.
    rows : int
        Rows that a thread has a part in, at a time.
    narrow : bool
        Whether 32 bits number the rows.
    reason : str
        Why, in one clause.
    """

    lanes: int
    group: int
    in_flight: int
    steps: int
    rows: int
    narrow: bool
    reason: str

    def __str__(self) -> str:
        threads = f"{self.group} threads" if self.group > 1 else "1 thread"
        elements = f"{self.lanes} elements" if self.lanes > 1 else "1 element"
        rows = f"{self.rows} rows" if self.rows > 1 else "1 row"
        return f"{threads} to a row, {rows} at a time, {elements} to an access"


def row_form_of(reduction: RowReduction) -> RowForm:
    """How a reduction is spread over threads."""
    axis = reduction.axes[-1]
    reads = reduction.reads() or loads_of(reduction.value)
    along = [load for load in reads if moves(load, axis)]
    lanes, reason = 1, "no row is read along its last axis"
    if along:
        lanes, reason = lanes_of(axis, reduction.sizes[-1], along)
    accesses = reduction.length // lanes
    group = _group(accesses)
    turns = -(-accesses // group)
    in_flight = min(turns, MOST_IN_FLIGHT)
    rows = max(MOST_IN_FLIGHT // turns, 1)
    sizes = reduction.sizes[: reduction.rows]
    count = prod(sizes) if all(isinstance(size, int) for size in sizes) else None
    if count is None and lanes > 1:
        rows = max(rows // 2, 1)
    while count is not None and rows > 1 and count * group < rows * FILLS_GPU:
        rows //= 2
    nodes = lanes * sum(map(nodes_of, without_loads(reduction.value)[0]))
    while rows > 1 and rows * in_flight * nodes > MOST_NODES:
        rows //= 2
    while in_flight > 1 and in_flight * nodes > MOST_NODES:
        in_flight //= 2
    narrow = count is not None and count * group + ROUNDING < INT32_VALUES
    return RowForm(lanes, group, in_flight, -(-turns // in_flight), rows, narrow, reason)


def _group(accesses: int) -> int:
    """The largest group of threads of which few have nothing to do in some turn."""
    sizes = [1 << bits for bits in range(_WARP.bit_length()) if 1 << bits < 2 * accesses]
    room = {size: -(-accesses // size) * size for size in sizes}
    return max(size for size in sizes if room[size] <= _MOST_IDLE * min(room.values()))
