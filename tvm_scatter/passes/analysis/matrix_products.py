"""Products of matrices, and the tiles in which a GPU computes them in single precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import (
    IterKind,
    detect_iter_traits,
    get_reduction_blocks,
)

from tvm_scatter.problem.reductions import HALVES
from tvm_scatter.problem.sizes import ceil_div, round_up

from .fragment_tiles import FragmentTile, fragment_tile

#: The fewest rows, columns and terms of a sum of a product that has tiles.
_FEWEST, _FEWEST_TERMS = 16, 4
#: As many terms need more than one step of fragments, and copies go on beside the first.
_FEWEST_OF_HALVES = 17
#: As many tiles as keep a large GPU busy, at least one on each multiprocessor, and enough of the
#: widest ones to take turns.
_BUSY, _MANY = 132, 396
#: Narrower tiles pay where the others would be wider than the result by this part.
_WIDER = 1.2


class Tile(NamedTuple):
    """What a block of threads computes.

    Attributes
    ----------
    threads : tuple of int
        The threads along its rows and its columns.
    parts : tuple of int
        The parts of the tile that each thread has something of, along both.
    elements : tuple of int
        The neighbouring elements of a part that a thread computes, along both.
    depth : int
        The terms of a sum that are brought to shared memory together.
    """

    threads: tuple[int, int]
    parts: tuple[int, int]
    elements: tuple[int, int]
    depth: int

    @property
    def rows(self) -> int:
        return self.threads[0] * self.parts[0] * self.elements[0]

    @property
    def columns(self) -> int:
        return self.threads[1] * self.parts[1] * self.elements[1]


_WIDE = Tile((8, 16), (2, 2), (4, 4), 16)
#: With half as many barriers: faster where its depth divides the sums.
_DEEP = Tile((8, 16), (2, 2), (4, 4), 32)
_SQUARE = Tile((8, 8), (2, 2), (4, 4), 16)
#: Of the size of a square, by twice the threads: faster where its depth divides the sums.
_BUSY_SQUARE = Tile((8, 16), (2, 2), (4, 2), 32)
_NARROW = Tile((8, 8), (2, 2), (4, 2), 16)
_SMALL = Tile((8, 8), (1, 1), (4, 4), 16)


@dataclass(frozen=True)
class MatrixProduct:
    """The sizes of a product of matrices; ``None`` for those that only the run time knows.

    Attributes
    ----------
    batches, rows, columns, terms : int or None
        The number of products, the rows and columns of each, and the terms of each sum.
    dtype : str
        The type of what is multiplied. It is added up in single precision.
    by_group : bool
        Whether four warps of the target may use tensor cores together.
    """

    batches: int | None
    rows: int | None
    columns: int | None
    terms: int | None
    dtype: str = "float32"
    by_group: bool = False

    @property
    def tile(self) -> Tile | FragmentTile:
        """The tile that takes least time, of those that were measured on an H200."""
        if self.dtype in HALVES:
            sizes = (self.batches, self.rows, self.columns, self.terms)
            return fragment_tile(*sizes, self.by_group)
        if self.rows is not None and self.rows <= _SMALL.rows:
            return _SMALL
        square_of_terms = _BUSY_SQUARE if self._divided_by(_BUSY_SQUARE) else _SQUARE
        if self.columns is None:
            return square_of_terms
        narrow, square, wide = (
            round_up(self.columns, each.columns) for each in (_NARROW, _SQUARE, _WIDE)
        )
        if square >= _WIDER * narrow:
            return _NARROW
        if wide == square and self._tiles(_WIDE) >= _MANY:
            return _DEEP if self._divided_by(_DEEP) else _WIDE
        if self._tiles(_SQUARE) < _BUSY:
            return _SMALL
        return square_of_terms

    def _divided_by(self, tile: Tile) -> bool:
        """Whether the terms of a sum are known to be brought in whole steps of a tile."""
        return self.terms is not None and self.terms % tile.depth == 0

    @property
    def columns_of_tiles(self) -> int | None:
        """How many tiles lie side by side, each of which reads all of the rows."""
        return None if self.columns is None else ceil_div(self.columns, self.tile.columns)

    def _tiles(self, tile: Tile) -> int:
        """The number of tiles. A number that only the run time knows is that of nodes or edges."""
        if self.batches is None or self.rows is None or self.columns is None:
            return _MANY
        of_rows, of_columns = ceil_div(self.rows, tile.rows), ceil_div(self.columns, tile.columns)
        return self.batches * of_rows * of_columns


def matrix_product(function: tirx.PrimFunc) -> MatrixProduct | None:
    """The sizes of the one product that a function computes, which is not scheduled yet.

    ``None`` if it computes anything else, in another type, or a product that is too small for
    tiles.
    """
    schedule = s_tir.Schedule(function)
    blocks = schedule.get_child_blocks(get_root_block(schedule))
    reductions = get_reduction_blocks(schedule, blocks)
    if reductions is None or len(reductions) != 1:
        return None
    block = schedule.get(reductions[0])
    *factors, result = (str(part.source.dtype) for part in (*block.reads, *block.writes))
    if result != "float32" or len(set(factors)) != 1 or factors[0] not in ("float32", *HALVES):
        return None
    traits = detect_iter_traits(block)
    if traits is None:
        return None
    kinds = (IterKind.kIter_S, IterKind.kIter_I, IterKind.kIter_J, IterKind.kIter_K)
    batches, rows, columns, terms = (_extent(traits[3], kind) for kind in kinds)
    found = MatrixProduct(batches, rows, columns, terms, factors[0])
    return found if _has_tiles(found) else None


def _has_tiles(product: MatrixProduct) -> bool:
    terms = _FEWEST_OF_HALVES if product.dtype in HALVES else _FEWEST_TERMS
    wanted = ((product.rows, _FEWEST), (product.columns, _FEWEST), (product.terms, terms))
    return all(size is None or size >= least for size, least in wanted)


def _extent(traits: Sequence[Any], kind: IterKind) -> int | None:
    """The elements along the axes of a kind; ``None`` if they are not known."""
    extents = [trait.extent for trait in traits if trait.kind == kind]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return prod(int(extent) for extent in extents)
