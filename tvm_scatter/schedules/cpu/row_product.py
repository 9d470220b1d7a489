"""Products of one row with a matrix, which take as long as the matrix is read from memory.

Each thread reads some rows of the matrix at once, over a long run of columns. Tiles that fit in
registers would read too little of each row, before they go on to the next, on another page of
memory. The sum of each result is in the order in which it is written.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule
from tvm.target import Target

from .blocks import Reduced, is_read_along, lie_side_by_side, reduced, shared_by_all
from .machine import registers

#: Rows of the matrix that are read at once.
_ROWS = 8
#: Bits of each of them that a thread reads: at most a page of memory.
_LONGEST, _SHORTEST = 1 << 15, 1 << 12
#: Runs that are shared among the threads, if the shortest are not longer.
_RUNS = 8
#: A smaller matrix, in bits, is in a cache.
_SMALLEST = 1 << 23


class RowProduct(CPUScheduleRule):
    """Long runs of columns, some rows of the matrix at a time."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no product of one row, or a small one."""
        if not self.is_target_available(target):
            return None
        found = reduced(func)
        if found is None or not found.spatial or len(found.reduced) != 1:
            return None
        lanes = registers(target).lanes(found.bits())
        run = _run(found, lanes)
        return None if run is None else _scheduled(found, run, lanes)


def _run(found: Reduced, lanes: int) -> int | None:
    """The columns of a run; ``None`` if the function is no large product of one row."""
    reads, column, sizes = found.reads(), found.spatial[-1], found.sizes()
    if not is_read_along(reads, column) or not lie_side_by_side(reads, column):
        return None
    row = shared_by_all(found, column)
    if row is not None and sizes[found.spatial[row]] != 1:
        return None
    columns, rows, bits = sizes[column], sizes[found.reduced[0]], found.bits()
    if not isinstance(columns, int) or not isinstance(rows, int) or rows % _ROWS:
        return None
    if rows * columns * bits < _SMALLEST:
        return None
    return _length(columns, bits, lanes)


def _length(columns: int, bits: int, lanes: int) -> int | None:
    """The longest run that leaves one for each of some threads; all runs are of one length."""
    lengths = range(_SHORTEST // bits, _LONGEST // bits + 1)
    dividing = [length for length in lengths if columns % length == 0]
    lengths_of_vectors = [length for length in dividing if length % lanes == 0] or dividing
    shared = [length for length in lengths_of_vectors if columns // length >= _RUNS]
    return max(shared, default=min(lengths_of_vectors, default=None))


def _scheduled(found: Reduced, run: int, lanes: int) -> s_tir.Schedule:
    schedule, product = found.schedule, found.block.block_rv
    result = (
        found.epilogue.block_rv if found.epilogue else schedule.cache_write(product, 0, "local")
    )
    *outer, last = schedule.get_loops(result)
    runs, column = schedule.split(last, [None, run])
    _vectors(schedule, column, lanes)
    schedule.compute_at(product, runs, preserve_unit_loops=True)
    schedule.parallel(schedule.fuse(*outer, runs) if outer else runs)
    _add_rows(found, lanes)
    return schedule


def _add_rows(found: Reduced, lanes: int) -> None:
    """Add some rows of the matrix, times a number each, to the sums."""
    schedule, product = found.schedule, found.block.block_rv
    loops = schedule.get_loops(product)[-len(found.block.iters) :]
    pairs = list(zip(loops, found.block.dom_kind(), strict=True))
    column = [loop for loop, kind in pairs if kind == "S"][-1]
    (reduced_loop,) = (loop for loop, kind in pairs if kind == "R")
    several, row = schedule.split(reduced_loop, [None, _ROWS])
    vectors, *lane = _vectors(schedule, column, lanes)
    schedule.reorder(several, vectors, row, *lane)
    schedule.unroll(row)
    start = schedule.get_loops(schedule.decompose_reduction(product, several))
    if lane:
        schedule.vectorize(start[-1])


def _vectors(schedule: s_tir.Schedule, column: Any, lanes: int) -> list[Any]:
    """The loops of a run. LLVM makes the vectors where they do not divide it."""
    if int(schedule.get(column).extent) % lanes:
        return [column]
    vectors, lane = schedule.split(column, [None, lanes])
    schedule.vectorize(lane)
    return [vectors, lane]
