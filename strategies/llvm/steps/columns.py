"""The columns of a row that one task works on: vectors, where their number is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.problem.reductions import item_bytes

from . import loops

#: Bytes of the widest vectors, which compilers cut for processors that have narrower ones.
_VECTOR_BYTES = 64
#: The most vectors that are written out, so that sums of a row stay in registers.
_MOST_VECTORS = 16


class Columns:
    """Some columns that follow each other.

    If their number is known, all their vectors are written out one after the other. A compiler then
    keeps a local buffer over them in registers, through loops as well.

    Parameters
    ----------
    count : int or expression
        How many there are.
    most : int
        At most so many, if their number is an expression.
    dtype : str, optional
        The data type of a vector's elements; ``None`` for a loop over single columns.
    """

    def __init__(self, count: Any, most: int, dtype: str | None = None) -> None:
        self.count = count
        self.room = count if isinstance(count, int) else most
        self._vectors: list[tuple[int, int]] = []
        if isinstance(count, int) and dtype is not None:
            self._vectors = list(_vectors(count, item_bytes(dtype)))

    def each(self, body: Callable[[Any], None]) -> None:
        """Emit ``body`` for each column, or for each vector of them."""
        if not 0 < len(self._vectors) <= _MOST_VECTORS:
            with loops.serial(self.count) as column:
                body(column)
            return
        for first, lanes in self._vectors:
            if lanes == 1:
                body(tirx.IntImm("int64", first))
                continue
            with T.vectorized(lanes) as lane:
                body(first + tirx.Cast("int64", lane))


def _vectors(count: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """The first column and the length of each vector: of the widest, then of narrower ones."""
    first, lanes = 0, _VECTOR_BYTES // itemsize
    while first < count:
        while lanes > count - first:
            lanes //= 2
        yield first, lanes
        first += lanes
