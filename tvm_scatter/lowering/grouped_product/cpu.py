"""The grouped product on a CPU.

A task computes some columns of one group. It keeps the sums of a few rows in registers, and reads
the columns of the group's matrix once for these. Where it reads them again and again, it copies
them first: the rows of a matrix may be so far apart that they evict each other from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from .groups import Function, Operands, Problem, int64

#: Sums that are computed together: rows, and vectors of columns.
_ROWS = 4
_LANES = 8
_VECTORS = 2
#: The columns are copied for at least so many rows.
_COPIED_ROWS = 8 * _ROWS
#: With fewer products to add up, to start the worker threads costs more than it saves.
_SERIAL_PRODUCTS = 1 << 16


def build(problem: Problem, kind: str) -> tirx.PrimFunc:
    """The function for a problem."""
    function = Function(problem, kind)
    width = _LANES * _VECTORS
    full, left = divmod(problem.columns, width)
    with function.body() as operands:
        if full:
            with _tasks(problem, full) as task:
                first = T.bind(tirx.floormod(task, int64(full)) * width)
                group = T.bind(tirx.floordiv(task, int64(full)))
                _Task(operands, group, first, _LANES, _VECTORS).compute()
        if left:
            with _tasks(problem, 1) as group:
                _Task(operands, group, int64(full * width), left, 1).compute()
    return function.result


def _tasks(problem: Problem, spans: int) -> Any:
    """A loop over the spans of columns of each group, and of the rows in no group."""
    count = int64((problem.groups + 1) * spans)
    rows = problem.rows
    small = isinstance(rows, int) and rows * problem.inner * problem.columns <= _SERIAL_PRODUCTS
    return T.serial(count) if small else T.parallel(count)


@dataclass(frozen=True)
class _Task:
    """Some columns of one group, as vectors of so many lanes."""

    operands: Operands
    group: Any
    first: Any
    lanes: int
    vectors: int

    def compute(self) -> None:
        """Compute all rows of the group."""
        begin = T.bind(self.operands.begin(self.group))
        count = T.bind(tirx.max(self.operands.end(self.group) - begin, int64(0)))
        with T.If(count < _COPIED_ROWS):
            with T.Then():
                self._rows(begin, count, self._element)
            with T.Else():
                self._rows(begin, count, self._copied())

    def _element(self, k: Any, column: Any) -> Any:
        return self.operands.matrix_element(self.group, k, self.first + column)

    def _copied(self) -> Callable[[Any, Any], Any]:
        """Copy the columns of the matrix; returns what reads the copy."""
        problem, width = self.operands.problem, self.lanes * self.vectors
        size = max(problem.inner, 1) * width
        copy = T.alloc_buffer((size,), problem.sum_dtype, scope="global")
        with T.serial(self._inner()) as k, T.vectorized(int64(width)) as column:
            T.buffer_store(copy, self._element(k, column), [k * width + column])
        return lambda k, column: copy[k * width + column]

    def _rows(self, begin: Any, count: Any, element: Callable[[Any, Any], Any]) -> None:
        """Compute several rows at once, then the rest one by one."""
        tiles = T.bind(tirx.floordiv(count, int64(_ROWS)))
        with T.serial(tiles) as tile:
            self._tile(T.bind(begin + tile * _ROWS), _ROWS, element)
        with T.serial(count - tiles * _ROWS) as row:
            self._tile(T.bind(begin + tiles * _ROWS + row), 1, element)

    def _tile(self, row: Any, rows: int, element: Callable[[Any, Any], Any]) -> None:
        """Add up the products of a few rows."""
        operands, lanes = self.operands, self.lanes
        dtype = operands.problem.sum_dtype
        sums = T.alloc_buffer((rows * self.vectors * lanes,), dtype, scope="local")
        places = [(r, v * lanes) for r in range(rows) for v in range(self.vectors)]

        def place(r: int, column: Any) -> Any:
            return int64(r * self.vectors * lanes) + column

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
                operands.store(row + r, self.first + v + lane, sums[place(r, v + lane)])

    def _inner(self) -> Any:
        """How many products are added up: none for rows in no group."""
        problem = self.operands.problem
        inner = tirx.if_then_else(self.group < problem.groups, int64(problem.inner), int64(0))
        return T.bind(inner)
