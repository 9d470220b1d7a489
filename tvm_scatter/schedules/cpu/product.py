"""Products, and other reductions whose results stand side by side in memory.

Each thread computes tiles of the result that fit in registers: some rows of some vectors. What
follows the product, such as a bias, is computed on the tile. The sum of each result is in the
order in which it is written, so that it has the same bits as without a schedule, except where the
CPU multiplies and adds in one instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule
from tvm.target import Target

from tvm_scatter.ops.shapes import is_one

from .blocks import Reduced, is_read_along, lie_side_by_side, reduced, shared_by_all
from .machine import is_worth_threads, registers

#: Rows that a thread computes for the same columns of the second operand.
_BLOCK = 64
#: TVM's annotation of a loop whose last turns may be compiled apart.
_APART = "pragma_loop_partition_hint"


class Product(CPUScheduleRule):
    """Tiles of rows and vectors of columns."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no product."""
        if not self.is_target_available(target):
            return None
        found = reduced(func)
        if found is None or not found.spatial:
            return None
        reads, column = found.reads(), found.spatial[-1]
        if not is_read_along(reads, column) or not lie_side_by_side(reads, column):
            return None
        tile = _tile(found, column, target)
        return _scheduled(found, tile) if tile.even or _same_kind(found) else None


@dataclass(frozen=True)
class _Tile:
    """How many results are computed together.

    Attributes
    ----------
    row : int or None
        Which of the data-parallel variables counts rows; all rows have the same second operand.
    rows, block : int
        The rows of a tile, and of all tiles that use the same columns in turn.
    columns : int
        The columns of a tile.
    even : bool
        Whether the columns of all tiles are as many.
    """

    row: int | None
    rows: int
    block: int
    columns: int
    even: bool


def _same_kind(found: Reduced, axis: int = -1) -> bool:
    """Whether all sizes are numbers, or that of an axis is symbolic; by default, of the columns.

    TVM cannot compile the last of a known number apart if other sizes are symbolic.
    """
    known = [isinstance(size, int) for size in found.sizes().values()]
    return all(known) or not isinstance(found.sizes()[found.spatial[axis]], int)


def _tile(found: Reduced, column: Any, target: Target) -> _Tile:
    sizes, vectors = found.sizes(), registers(target)
    lanes = vectors.lanes(found.bits())
    columns, even = _columns(sizes[column], lanes, 2)
    row = shared_by_all(found, column)
    count: Any = None if row is None else sizes[found.spatial[row]]
    known = isinstance(count, int)
    if row is None or not (even or known):
        return _Tile(None, 1, 1, *_columns(sizes[column], lanes, vectors.rows))
    rows = max(min(vectors.rows, count), 1) if known else vectors.rows
    return _Tile(row, rows, _BLOCK, columns, even)


def _columns(count: Any, lanes: int, most: int) -> tuple[int, bool]:
    """The columns of a tile of at most so many vectors, and whether they divide all columns."""
    if not isinstance(count, int):
        return lanes, False
    if count <= lanes:
        return max(count, 1), True
    wide = [lanes * vectors for vectors in (8, 4, 2, 1) if vectors <= most]
    # Half a vector and more is better than last columns that are computed apart.
    sizes = [*wide, *range(lanes - 1, lanes // 2 - 1, -1)]
    dividing = [size for size in sizes if size > 1 and count % size == 0]
    return (dividing[0], True) if dividing else (lanes, False)


def _scheduled(found: Reduced, tile: _Tile) -> s_tir.Schedule:
    schedule, product = found.schedule, found.block.block_rv
    result = (
        found.epilogue.block_rv if found.epilogue else schedule.cache_write(product, 0, "local")
    )
    loops = _loops_of_variables(found, schedule.get_loops(result))
    columns, column = schedule.split(loops[-1], [None, tile.columns])
    together = [loop for at, loop in enumerate(loops[:-1]) if at != tile.row]
    row = None
    each = columns
    if tile.row is not None:
        counts = [None, tile.block // tile.rows, tile.rows]
        blocks, each, row = schedule.split(loops[tile.row], counts)
        # The last rows and columns are computed apart, so that the others need no check.
        count = found.sizes()[found.spatial[tile.row]]
        even = isinstance(count, int) and count % tile.rows == 0
        if even or _same_kind(found, tile.row):
            schedule.annotate(each, _APART, 1)
        schedule.reorder(*together, blocks, columns, each, row, column)
        together.append(blocks)
    if tile.even:
        together.append(columns)
    else:
        schedule.annotate(columns, _APART, 1)
    schedule.compute_at(product, each, preserve_unit_loops=True)
    if together and is_worth_threads(found.sizes().values()):
        schedule.parallel(schedule.fuse(*together) if len(together) > 1 else together[0])
    _in_registers(schedule, row, column)
    _accumulate(found, tile)
    return schedule


def _loops_of_variables(found: Reduced, loops: Sequence[Any]) -> list[Any]:
    """A loop for each data-parallel variable.

    The copy of a product also has loops over axes of one element, which the product itself has not.
    """
    schedule, loops = found.schedule, list(loops)
    while len(loops) > len(found.spatial):
        at = next(at for at, loop in enumerate(loops) if is_one(schedule.get(loop).extent))
        at = min(at, len(loops) - 2)
        loops[at : at + 2] = [schedule.fuse(*loops[at : at + 2])]
    return loops


def _accumulate(found: Reduced, tile: _Tile) -> None:
    """Read each element of the second operand once for all rows of the tile."""
    schedule, product = found.schedule, found.block.block_rv
    sums, spatial = _inner_loops(found, "R"), _inner_loops(found, "S")
    row = None if tile.row is None else spatial[tile.row]
    schedule.reorder(*sums, *([] if row is None else [row]), spatial[-1])
    _in_registers(schedule, row, spatial[-1])
    start = schedule.get_loops(schedule.decompose_reduction(product, sums[0]))
    _in_registers(schedule, None if row is None else start[-2], start[-1])


def _inner_loops(found: Reduced, kind: str) -> list[Any]:
    """The product's own loops over the variables of a kind, in the order of these."""
    loops = found.schedule.get_loops(found.block.block_rv)[-len(found.block.iters) :]
    kinds = found.block.dom_kind()
    return [loop for loop, each in zip(loops, kinds, strict=True) if each == kind]


def _in_registers(schedule: s_tir.Schedule, row: Any, column: Any) -> None:
    schedule.vectorize(column)
    if row is not None:
        schedule.unroll(row)
