"""The grouped product on a CPU.

A task computes some columns of one group. It keeps the sums of a few rows in registers, and reads
the columns of the group's matrix once for these. Where it reads them again and again, it copies
them first: the rows of a matrix may be so far apart that they evict each other from the cache.
The last rows are computed in all columns of the task at once, as a matrix that is read for one row
only takes as long as its memory: then more of it must lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from .groups import Function, Operands, Problem, int64

#: Sums that are computed together: rows, and vectors of columns.
_ROWS = 4
_LANES = 8
_VECTORS = 2
#: So many of these are a task, and so many tasks of a group follow each other, since their columns
#: are in the same pages of memory.
_SPANS = 4
_NEIGHBOURS = 4
#: The columns are copied for at least so many tiles of rows.
_COPIED_TILES = 8
#: With fewer products to add up, to start the worker threads costs more than it saves.
_SERIAL_PRODUCTS = 1 << 16


def build(problem: Problem, kind: str) -> tirx.PrimFunc:
    """The function for a problem."""
    function = Function(problem, kind)
    width = _LANES * _VECTORS
    spans, left = divmod(problem.columns, width)
    full, rest = divmod(spans, _SPANS)
    with function.body() as operands:
        _for_each(operands, full, 0, (_LANES, _VECTORS, _SPANS))
        _for_each(operands, 1 if rest else 0, full * _SPANS * width, (_LANES, _VECTORS, rest))
        _for_each(operands, 1 if left else 0, spans * width, (left, 1, 1))
    return function.result


def _for_each(operands: Operands, count: int, first: int, sizes: tuple[int, int, int]) -> None:
    """Compute so many tasks of each group, and of the rows in no group, from a column on.

    Some groups may be empty. So the columns are divided first, and each thread gets all groups.
    """
    if not count:
        return
    problem, groups = operands.problem, int64(operands.problem.groups + 1)
    neighbours = next(n for n in range(_NEIGHBOURS, 0, -1) if count % n == 0)
    rows = problem.rows
    small = isinstance(rows, int) and rows * problem.inner * problem.columns <= _SERIAL_PRODUCTS
    loop = T.serial if small else T.parallel
    with loop(int64(count) * groups) as task:
        several = T.bind(tirx.floordiv(task, int64(neighbours)))
        group = T.bind(tirx.floormod(several, groups))
        near = tirx.floordiv(several, groups) * neighbours + tirx.floormod(task, int64(neighbours))
        _Task(operands, group, T.bind(near * prod(sizes) + first), *sizes).compute()


@dataclass(frozen=True)
class _Task:
    """Some columns of one group, as spans of some vectors of so many lanes."""

    operands: Operands
    group: Any
    first: Any
    lanes: int
    vectors: int
    spans: int

    def compute(self) -> None:
        """Compute all rows of the group."""
        begin = T.bind(self.operands.begin(self.group))
        count = T.bind(tirx.max(self.operands.end(self.group) - begin, int64(0)))
        tiles = T.bind(tirx.floordiv(count, int64(_ROWS)))
        with T.If(tiles > 0), T.Then():
            with T.serial(int64(self.spans)) as span:
                self._tiles(T.bind(span * (self.lanes * self.vectors)), begin, tiles)
        self._last(T.bind(begin + tiles * _ROWS), T.bind(count - tiles * _ROWS))

    def _tiles(self, column: Any, begin: Any, tiles: Any) -> None:
        """Compute a span of several rows at once."""

        def compute(element: Callable[[Any, Any], Any]) -> None:
            with T.serial(tiles) as tile:
                row = T.bind(begin + tile * _ROWS)
                self._tile(row, _ROWS, column, self.vectors, element)

        with T.If(tiles < _COPIED_TILES):
            with T.Then():
                compute(lambda k, at: self._element(k, column + at))
            with T.Else():
                compute(self._copied(column))

    def _last(self, row: Any, count: Any) -> None:
        """Compute the rows that are too few for a tile, in all columns."""
        vectors, zero = self.vectors * self.spans, int64(0)
        with T.serial(tirx.floordiv(count, int64(2))):
            self._tile(row, 2, zero, vectors, self._element)
        with T.serial(tirx.floormod(count, int64(2))):
            self._tile(T.bind(row + count - 1), 1, zero, vectors, self._element)

    def _element(self, k: Any, column: Any) -> Any:
        return self.operands.matrix_element(self.group, k, self.first + column)

    def _copied(self, first: Any) -> Callable[[Any, Any], Any]:
        """Copy a span of the matrix; returns what reads the copy."""
        problem, width = self.operands.problem, self.lanes * self.vectors
        size = max(problem.inner, 1) * width
        copy = T.alloc_buffer((size,), problem.sum_dtype, scope="global")
        with T.serial(self._inner()) as k, T.vectorized(int64(width)) as column:
            T.buffer_store(copy, self._element(k, first + column), [k * width + column])
        return lambda k, column: copy[k * width + column]

    def _tile(
        self,
        row: Any,
        rows: int,
        first: Any,
        vectors: int,
        element: Callable[[Any, Any], Any],
    ) -> None:
        """Add up the products of a few rows."""
        operands, lanes = self.operands, self.lanes
        dtype = operands.problem.sum_dtype
        sums = T.alloc_buffer((rows * vectors * lanes,), dtype, scope="local")
        places = [(r, v * lanes) for r in range(rows) for v in range(vectors)]

        def place(r: int, column: Any) -> Any:
            return int64(r * vectors * lanes) + column

        for r, v in places:
            with T.vectorized(int64(lanes)) as lane:
                T.buffer_store(sums, tirx.FloatImm(dtype, 0.0), [place(r, v + lane)])
        with T.serial(self._inner()) as k:
            for r, v in places:
                with T.vectorized(int64(lanes)) as lane:
                    at = place(r, v + lane)
                    product = operands.row_element(row + r, k) * element(k, v + lane)
                    T.buffer_store(sums, sums[at] + product, [at])
        for r, v in places:
            with T.vectorized(int64(lanes)) as lane:
                column = self.first + first + v + lane
                operands.store(row + r, column, sums[place(r, v + lane)])

    def _inner(self) -> Any:
        """How many products are added up: none for rows in no group."""
        problem = self.operands.problem
        inner = tirx.if_then_else(self.group < problem.groups, int64(problem.inner), int64(0))
        return T.bind(inner)
