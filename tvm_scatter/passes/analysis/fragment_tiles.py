"""The tiles in which tensor cores compute a product of matrices."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tvm_scatter.problem.sizes import ceil_div, round_up

#: Rows, columns and terms of a fragment.
SIDE = 16
#: As many tiles as keep a large GPU busy: about one on each multiprocessor.
_BUSY = 128
#: A smaller tile pays where the others would be wider than the result by this part.
_WIDER = 1.3


class FragmentTile(NamedTuple):
    """What a block of threads computes.

    Attributes
    ----------
    warps : tuple of int
        The warps along its rows and its columns.
    fragments : tuple of int
        The fragments of 16 x 16 elements of a warp, along both.
    depth : int
        The terms of a sum that are brought to shared memory together.
    stages : int
        The steps of that many terms that are copied or computed at a time.
    by_group : bool
        Whether four warps use tensor cores together, which read both factors from shared memory.
    """

    warps: tuple[int, int]
    fragments: tuple[int, int]
    depth: int
    stages: int
    by_group: bool = False

    @property
    def rows(self) -> int:
        return SIDE * self.warps[0] * self.fragments[0]

    @property
    def columns(self) -> int:
        return SIDE * self.warps[1] * self.fragments[1]


_LARGE = FragmentTile((2, 2), (4, 4), 64, 2)
_TALL = FragmentTile((4, 2), (2, 2), 64, 3)
_MIDDLE = FragmentTile((2, 2), (2, 2), 64, 4)
_SMALL = FragmentTile((2, 2), (1, 1), 64, 4)


class _Candidate(NamedTuple):
    """A tile of four warps and more together, measured on an H200.

    Attributes
    ----------
    tile : FragmentTile
        Its rows are a multiple of 64, and its steps are deep.
    fewest : int
        As many tiles as keep the GPU busy.
    cost : float
        The time that an element of a large product takes, of that with the first tile.
    """

    tile: FragmentTile
    fewest: int
    cost: float


_CANDIDATES = (
    _Candidate(FragmentTile((8, 1), (1, 16), 64, 4, True), 80, 1.0),
    _Candidate(FragmentTile((8, 1), (1, 8), 64, 3, True), 80, 1.08),
    _Candidate(FragmentTile((8, 1), (1, 4), 64, 4, True), 80, 1.2),
    _Candidate(FragmentTile((4, 1), (1, 4), 64, 4, True), 40, 1.35),
)
#: Less deep steps pay where deep ones would have more terms than the sums by this part.
_DEEPER = 1.2


def fragment_tile(
    batches: int | None,
    rows: int | None,
    columns: int | None,
    terms: int | None,
    by_group: bool = False,
) -> FragmentTile:
    """The tile for a product; ``None`` are sizes that only the run time knows, of many.

    ``by_group`` says whether a target has tensor cores that four warps use together.

    Its shared memory suits every GPU of compute capability 8.0 or more. It has at least two steps
    if a sum has more than 16 terms.
    """
    product = (batches, rows, columns)
    if by_group and (terms is None or terms > _CANDIDATES[0].tile.depth):
        busy = [each for each in _CANDIDATES if _tiles(product, each.tile) >= each.fewest]
        if busy:
            return min(busy, key=lambda each: each.cost * _padded(product, each.tile)).tile
    tile = _chosen(product)
    if terms is None:
        return tile
    depth = tile.depth
    while depth > SIDE and (
        depth >= terms or round_up(terms, depth) > _DEEPER * round_up(terms, depth // 2)
    ):
        depth //= 2
    return tile._replace(depth=depth, stages=min(tile.stages, ceil_div(terms, depth)))


#: Products, their rows and columns; ``None`` for those that only the run time knows.
_Sizes = tuple[int | None, int | None, int | None]


def _chosen(product: _Sizes) -> FragmentTile:
    """The first tile that is not much wider than the result, and keeps a large GPU busy."""
    for tile in (_LARGE, _TALL, _MIDDLE):
        is_wider = _padded(product, tile) >= _WIDER * _padded(product, _SMALL)
        if not is_wider and _tiles(product, tile) >= _BUSY:
            return tile
    return _SMALL


def _padded(product: _Sizes, tile: FragmentTile) -> int:
    """The elements of all tiles, of one product, along the sides that are known."""
    _, rows, columns = product
    sides = ((rows, tile.rows), (columns, tile.columns))
    return prod(1 if size is None else round_up(size, side) for size, side in sides)


def _tiles(product: _Sizes, tile: FragmentTile) -> int:
    batches, rows, columns = product
    if batches is None or rows is None or columns is None:
        return _BUSY
    return batches * ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns)
