"""The kernel of a product of any rows with a matrix of a few columns.

Some threads of a warp have neighbouring terms of a few rows, in turns, and all columns. Each reads
what it needs of the matrix, which is small, once for these rows. Then they share out the sums: of
two threads each adds up one half of what both have, and then of that with the next one.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import substitute

from .accesses import is_aligned, launched, local, over_lanes
from .few_column_form import FewColumnProduct
from .positions import split
from .product_blocks import SUM

_WARP, _THREADS = 32, 128
_ALL_LANES = tirx.const(0xFFFFFFFF, "uint32")


class Kernel:
    """The kernel of a product."""

    def __init__(self, found: FewColumnProduct) -> None:
        self.found = found
        *outer, (self.row_axis, rows), (self.column_axis, self.columns), (self.term_axis, terms) = (
            zip(found.axes, found.sizes, strict=True)
        )
        self.rows, self.lanes, self.group = found.rows, found.terms_beside, found.threads
        self.row_count, self.term_count = _wide(rows), _wide(terms)
        self.together = self.group * self.lanes
        self.is_whole = isinstance(terms, int) and terms % self.together == 0
        #: What a group of threads has one place of.
        self.tile_axis = tirx.Var("tile", "int64")
        tiles = tirx.floordiv(self.row_count + (self.rows - 1), self.rows)
        self.grid = [*((axis, _wide(size)) for axis, size in outer), (self.tile_axis, tiles)]
        self.count = prod((size for _, size in self.grid), start=_wide(1))
        self.block, self.thread = tirx.Var("block", "int64"), tirx.Var("thread", "int32")
        self.lane = tirx.floormod(self.thread, self.group)
        self.loaded = local("loaded", found.left.source.dtype, self.rows * self.lanes)
        self.factors = local("factors", found.right.source.dtype, self.columns)
        self.sums = local("sums", SUM, self.rows * self.columns)

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        groups = _THREADS // self.group
        number = self.block * groups + tirx.Cast("int64", tirx.floordiv(self.thread, self.group))
        # All threads of a warp exchange sums, also those that have no rows.
        place = split(tirx.min(number, self.count - 1), self.grid)
        self.first = place.pop(self.tile_axis) * self.rows
        self.places = place
        lines: list[tirx.Stmt] = [
            tirx.AllocBuffer(each) for each in (self.loaded, self.factors, self.sums)
        ]
        lines.append(over_lanes(self.rows * self.columns, self._cleared, False))
        tensors = (self.found.left.source, self.found.right.source)
        lanes = (self.lanes, self.found.columns_beside)
        asked = [is_aligned(*each) for each in zip(tensors, lanes, strict=True) if each[1] > 1]
        if asked:
            paths = [self._steps(vectors) for vectors in (True, False)]
            lines.append(tirx.IfThenElse(tirx.all(*asked), *paths))
        else:
            lines.append(self._steps(False))
        lines += self._exchanged(number < self.count)
        threads = tirx.IntImm("int32", _THREADS)
        inner = launched("threadIdx.x", self.thread, threads, tirx.SeqStmt(lines))
        blocks = tirx.floordiv(self.count + (groups - 1), groups)
        return launched("blockIdx.x", self.block, blocks, inner)

    def _cleared(self, at: Any) -> tirx.Stmt:
        return self._set(at, tirx.const(0.0, SUM))

    def _steps(self, vectors: bool) -> tirx.Stmt:
        """Take a part of the terms into the sums of the thread."""
        step = tirx.Var("step", "int64")
        steps = tirx.floordiv(self.term_count + (self.together - 1), self.together)
        first = step * self.together + tirx.Cast("int64", self.lane) * self.lanes
        lines = [self._load(row, first, vectors) for row in range(self.rows)]
        taken = over_lanes(self.lanes, lambda lane: self._taken(first, lane, vectors), False)
        lines.append(
            taken if self.is_whole else tirx.IfThenElse(first < self.term_count, taken, None)
        )
        return tirx.For(step, _wide(0), steps, tirx.ForKind.SERIAL, tirx.SeqStmt(lines))

    def _load(self, row: int, first: Any, vectors: bool) -> tirx.Stmt:
        """Read some terms of a row, or of the last one in place of those behind it."""
        load = self.found.left
        if not self.is_whole:
            first = tirx.min(first, self.term_count - self.lanes)
        there = tirx.min(self.first + row, self.row_count - 1)

        def one(lane: Any) -> tirx.Stmt:
            here = self.places | {self.row_axis: there, self.term_axis: first + lane}
            value = tirx.BufferLoad(load.source, [substitute(each, here) for each in load.indices])
            return tirx.BufferStore(self.loaded, value, [row * self.lanes + lane])

        return over_lanes(self.lanes, one, vectors and self.lanes > 1)

    def _taken(self, first: Any, lane: Any, vectors: bool) -> tirx.Stmt:
        """Take a term of all rows into the sums."""
        load, beside = self.found.right, self.found.columns_beside
        lines = []
        for part in range(0, self.columns, beside):

            def one(column: Any, part: int = part) -> tirx.Stmt:
                here = self.places | {
                    self.column_axis: part + column,
                    self.term_axis: first + lane,
                }
                indices = [substitute(each, here) for each in load.indices]
                value = tirx.BufferLoad(load.source, indices)
                return tirx.BufferStore(self.factors, value, [part + column])

            lines.append(over_lanes(beside, one, vectors and beside > 1))
        for row in range(self.rows):
            element = tirx.Cast(SUM, self.loaded[row * self.lanes + lane])

            def add(column: Any, row: int = row, element: Any = element) -> tirx.Stmt:
                at = row * self.columns + column
                product = element * tirx.Cast(SUM, self.factors[column])
                return self._set(at, self.sums[at] + product)

            lines.append(over_lanes(self.columns, add, False))
        return tirx.SeqStmt(lines)

    def _exchanged(self, has_rows: Any) -> list[tirx.Stmt]:
        """Add up what the threads have, and write it: each some of the sums."""
        lines: list[tirx.Stmt] = []
        count, distance = self.rows * self.columns, self.group // 2
        begin: Any = tirx.IntImm("int32", 0)
        conditions = [has_rows]
        while distance:
            is_second = tirx.floormod(tirx.floordiv(self.lane, distance), 2) == 1
            shares = count % 2 == 0
            if shares:
                count //= 2
                begin = begin + tirx.Select(is_second, count, 0)
            else:
                # Both have all of them.
                conditions.append(tirx.Not(is_second))

            def exchange(
                at: Any,
                distance: int = distance,
                half: int = count if shares else 0,
                is_second: Any = is_second,
            ) -> tirx.Stmt:
                pair = (self.sums[at], self.sums[at + half])
                kept, sent = (tirx.Select(is_second, *each) for each in (pair[::-1], pair))
                lane = tirx.bitwise_xor(tirx.floormod(self.thread, _WARP), distance)
                other = T.tvm_warp_shuffle(_ALL_LANES, sent, lane, _WARP, _WARP)
                return self._set(at, kept + other)

            lines.append(over_lanes(count, exchange, False))
            distance //= 2

        def written(at: Any) -> tirx.Stmt:
            number = tirx.Cast("int64", begin) + at
            row, column = (part(number, self.columns) for part in (tirx.floordiv, tirx.floormod))
            there = self.first + row
            places = self.places | {self.row_axis: there, self.column_axis: column}
            store = self.found.write(places, self.sums[at])
            return tirx.IfThenElse(tirx.all(*conditions, there < self.row_count), store, None)

        return [*lines, over_lanes(count, written, False)]

    def _set(self, at: Any, value: Any) -> tirx.Stmt:
        return tirx.BufferStore(self.sums, value, [at])


def _wide(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else tirx.Cast("int64", value)
