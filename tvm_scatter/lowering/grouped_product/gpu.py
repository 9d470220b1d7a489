"""The grouped product on a GPU.

A block of threads computes a tile of the result, whose rows are all of one group. The tiles of the
groups are numbered through, and a block looks up to which group its tile belongs. How many tiles
there are is known at run time only, so some blocks may find none.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from .groups import Function, Operands, Problem, int64

#: The tile of a block, and the part of the sum for which its operands are in shared memory.
_ROWS, _COLUMNS, _DEPTH = 32, 64, 32
#: The threads of a block. Each computes the elements of the tile that are so far apart.
_THREAD_ROWS, _THREAD_COLUMNS = 16, 16
_THREADS = _THREAD_ROWS * _THREAD_COLUMNS
#: A column more puts the rows of a tile into different banks.
_STRIDE = _DEPTH + 1


def build(problem: Problem, kind: str) -> tirx.PrimFunc:
    """The function for a problem."""
    function = Function(problem, kind)
    with function.body() as operands, ExitStack() as launched:
        tiles = tirx.floordiv(operands.rows + (_ROWS - 1), int64(_ROWS)) + problem.groups
        spans = -(-problem.columns // _COLUMNS)
        tile = launched.enter_context(T.launch_thread("blockIdx.x", tiles))
        span = launched.enter_context(T.launch_thread("blockIdx.y", spans))
        thread = launched.enter_context(T.launch_thread("threadIdx.x", _THREADS))
        _Block(operands, int64(0) + tile, int64(0) + span, int64(0) + thread).compute()
    return function.result


class _Block:
    """What a block of threads does."""

    def __init__(self, operands: Operands, tile: Any, span: Any, thread: Any) -> None:
        self.operands = operands
        self.problem = operands.problem
        self.thread = T.bind(tirx.Cast("int64", thread))
        self.column = T.bind(tirx.Cast("int64", span) * _COLUMNS)
        self._find(T.bind(tirx.Cast("int64", tile)))

    def _find(self, tile: Any) -> None:
        """Find the group of a tile, its first row and where its rows end: none if there is none."""
        found = T.alloc_buffer((3,), "int64", scope="local")
        left = T.alloc_buffer((1,), "int64", scope="local")
        for i in range(3):
            T.buffer_store(found, int64(0), [i])
        T.buffer_store(left, tile, [0])
        with T.serial(int64(self.problem.groups + 1)) as group:
            begin, end = T.bind(self.operands.begin(group)), T.bind(self.operands.end(group))
            rows = tirx.max(end - begin, int64(0))
            tiles = T.bind(tirx.floordiv(rows + (_ROWS - 1), int64(_ROWS)))
            with T.If(tirx.all(left[0] >= 0, left[0] < tiles)), T.Then():
                for i, value in enumerate((group, begin + left[0] * _ROWS, end)):
                    T.buffer_store(found, value, [i])
            T.buffer_store(left, left[0] - tiles, [0])
        self.group, self.first, self.end = (T.bind(found[i]) for i in range(3))

    def compute(self) -> None:
        """Add up the products of the tile part by part, and write them."""
        problem = self.problem
        rows = T.alloc_buffer((_ROWS * _STRIDE,), problem.sum_dtype, scope="shared")
        matrix = T.alloc_buffer((_DEPTH * _COLUMNS,), problem.sum_dtype, scope="shared")
        sums = T.alloc_buffer((_ROWS * _COLUMNS // _THREADS,), problem.sum_dtype, scope="local")
        places = [
            (r, c) for r in range(_ROWS // _THREAD_ROWS) for c in range(_COLUMNS // _THREAD_COLUMNS)
        ]
        zero = tirx.FloatImm(problem.sum_dtype, 0.0)
        for i in range(len(places)):
            T.buffer_store(sums, zero, [i])
        thread_row = T.bind(tirx.floordiv(self.thread, int64(_THREAD_COLUMNS)))
        thread_column = T.bind(tirx.floormod(self.thread, int64(_THREAD_COLUMNS)))
        has_work = tirx.all(self.first < self.end, self.group < problem.groups)
        parts = -(-problem.inner // _DEPTH)
        with T.serial(T.bind(tirx.if_then_else(has_work, int64(parts), int64(0)))) as part:
            begin = T.bind(part * _DEPTH)
            self._load(rows, matrix, begin)
            with T.serial(int64(_DEPTH)) as k:
                for i, (r, c) in enumerate(places):
                    left = rows[(thread_row + r * _THREAD_ROWS) * _STRIDE + k]
                    right = matrix[k * _COLUMNS + thread_column + c * _THREAD_COLUMNS]
                    T.buffer_store(sums, sums[i] + left * right, [i])
        for i, (r, c) in enumerate(places):
            row = T.bind(self.first + thread_row + r * _THREAD_ROWS)
            column = T.bind(self.column + thread_column + c * _THREAD_COLUMNS)
            with T.If(tirx.all(row < self.end, column < problem.columns)), T.Then():
                self.operands.store(row, column, sums[i])

    def _load(self, rows: Any, matrix: Any, begin: Any) -> None:
        """Copy a part of the operands to shared memory, with zeros outside of them."""
        problem, zero = self.problem, tirx.FloatImm(self.problem.sum_dtype, 0.0)
        for step in range(_ROWS * _DEPTH // _THREADS):
            at = T.bind(self.thread + step * _THREADS)
            r, k = tirx.floordiv(at, int64(_DEPTH)), tirx.floormod(at, int64(_DEPTH))
            inside = tirx.all(self.first + r < self.end, begin + k < problem.inner)
            value = self.operands.row_element(self.first + r, begin + k)
            T.buffer_store(rows, tirx.if_then_else(inside, value, zero), [r * _STRIDE + k])
        for step in range(_DEPTH * _COLUMNS // _THREADS):
            at = T.bind(self.thread + step * _THREADS)
            k, c = tirx.floordiv(at, int64(_COLUMNS)), tirx.floormod(at, int64(_COLUMNS))
            inside = tirx.all(begin + k < problem.inner, self.column + c < problem.columns)
            value = self.operands.matrix_element(self.group, begin + k, self.column + c)
            T.buffer_store(matrix, tirx.if_then_else(inside, value, zero), [at])
