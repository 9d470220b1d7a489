"""The kernel of a product of a few rows with a matrix.

Neighbouring threads have neighbouring columns, and groups of such threads the rows of the matrix in
turns, a few at a time, each for all rows that are multiplied. Then they add up what they have,
first in each warp, then in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import substitute

from .accesses import is_aligned, launched, local, over_lanes
from .few_row_form import FewRowProduct
from .gather_form import has_vectors, neighbours_along
from .positions import split
from .product_blocks import SUM

_WARP, _THREADS = 32, 256
#: The most columns of a block.
_COLUMNS = 128
#: Rows of the matrix that a thread has on their way, and how many if more than so many rows are
#: multiplied with them.
_IN_FLIGHT, _IN_FLIGHT_FOR_MANY, _MANY = 8, 4, 4
#: Blocks that keep a large GPU busy, and the fewest threads that have neighbouring columns.
_BUSY, _FEWEST_BESIDE = 132, 4
_ALL_LANES = tirx.const(0xFFFFFFFF, "uint32")


class Kernel:
    """The kernel of a product."""

    def __init__(self, found: FewRowProduct) -> None:
        self.found, self.lanes = found, found.lanes
        self.matrix = found.load.source
        *outer, (self.column_axis, columns), (self.term_axis, terms) = zip(
            found.axes, found.sizes, strict=True
        )
        self.row_sizes = [(axis, size) for axis, size in outer if axis in found.rows]
        self.rows = prod(size for _, size in self.row_sizes)
        #: What a block has one place of.
        self.tile_axis = tirx.Var("tile", "int64")
        batches = [(axis, size) for axis, size in outer if size != 1 and axis not in found.rows]
        #: Threads beside each other, and groups of them.
        self.beside = _beside(columns // self.lanes, _COLUMNS // self.lanes, batches)
        self.groups = _THREADS // self.beside
        self.tile = self.beside * self.lanes
        self.in_flight = _IN_FLIGHT_FOR_MANY if self.rows > _MANY else _IN_FLIGHT
        self.together = self.groups * self.in_flight
        self.terms = _wide(terms)
        self.is_whole = isinstance(terms, int) and terms % self.together == 0
        self.grid = [*batches, (self.tile_axis, columns // self.tile)]
        self.ones = {axis: _wide(0) for axis, size in outer if size == 1}
        self.block, self.thread = tirx.Var("block", "int64"), tirx.Var("thread", "int32")
        self.loaded = local("loaded", self.matrix.dtype, self.in_flight * self.lanes)
        self.given = self._given()
        kept = SUM if self.given is None else self.given.source.dtype
        self.factors = local("factors", kept, self.rows * self.in_flight)
        self.sums = local("sums", SUM, self.rows * self.lanes)
        shape = (_THREADS // _WARP, self.rows * self.tile)
        self.staged = tirx.decl_buffer(shape, SUM, "staged", scope="shared")

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        place = split(self.block, self.grid)
        first = place.pop(self.tile_axis) * self.tile
        self.places = {**place, **self.ones}
        lane = tirx.Cast("int64", tirx.floormod(self.thread, self.beside))
        group = tirx.Cast("int64", tirx.floordiv(self.thread, self.beside))
        self.column = first + lane * self.lanes
        held = (self.loaded, self.factors, self.sums, self.staged)
        lines: list[tirx.Stmt] = [tirx.AllocBuffer(each) for each in held]
        lines.append(self._of_sums(lambda at: self._set(at, tirx.const(0.0, SUM))))
        aligned = is_aligned(self.matrix, self.lanes)
        if self.given is not None:
            aligned = tirx.all(aligned, is_aligned(self.given.source, self.in_flight))
        paths = [self._steps(group, vectors) for vectors in (True, False)]
        lines.append(tirx.IfThenElse(aligned, *paths))
        lines += [*self._exchanged(), self._written(first)]
        threads = tirx.IntImm("int32", _THREADS)
        inner = launched("threadIdx.x", self.thread, threads, tirx.SeqStmt(lines))
        blocks = prod((_wide(size) for _, size in self.grid), start=_wide(1))
        return launched("blockIdx.x", self.block, blocks, inner)

    def _given(self) -> Any:
        """The load of the first factor, if some of its terms are read by one access."""
        factor = self.found.factor
        load = factor.value if isinstance(factor, tirx.Cast) else factor
        if not self.is_whole or not isinstance(load, tvm.ir.TensorLoad):
            return None
        beside = neighbours_along(load, self.term_axis)
        is_vector = beside > 0 and beside % self.in_flight == 0 and has_vectors(load.source)
        return load if is_vector else None

    def _steps(self, group: Any, vectors: bool) -> tirx.Stmt:
        """Take a part of the terms into the sums of the thread."""
        step = tirx.Var("step", "int64")
        steps = tirx.floordiv(self.terms + (self.together - 1), self.together)
        first = step * self.together + group * self.in_flight
        terms = [first + at for at in range(self.in_flight)]
        lines = [self._load(at, term, vectors) for at, term in enumerate(terms)]
        lines += self._load_factors(first, vectors)
        for at, term in enumerate(terms):
            taken = self._taken(at)
            lines.append(
                taken if self.is_whole else tirx.IfThenElse(term < self.terms, taken, None)
            )
        return tirx.For(step, _wide(0), steps, tirx.ForKind.SERIAL, tirx.SeqStmt(lines))

    def _there(self, term: Any) -> Any:
        """A term, or the last one in place of those behind it."""
        return term if self.is_whole else tirx.min(term, self.terms - 1)

    def _load(self, at: int, term: Any, vectors: bool) -> tirx.Stmt:
        places = {**self.places, self.term_axis: self._there(term)}
        load = self.found.load

        def one(lane: Any) -> tirx.Stmt:
            here = places | {self.column_axis: self.column + lane}
            indices = [substitute(index, here) for index in load.indices]
            value = tirx.BufferLoad(self.matrix, indices)
            return tirx.BufferStore(self.loaded, value, [at * self.lanes + lane])

        return over_lanes(self.lanes, one, vectors, self.matrix)

    def _load_factors(self, first: Any, vectors: bool) -> list[tirx.Stmt]:
        """What the terms are multiplied with, for each row."""
        value = self.found.factor if self.given is None else self.given
        lines = []
        for row in range(self.rows):
            places = self.places | self._row(row)

            def one(lane: Any, row: int = row, places: Any = places) -> tirx.Stmt:
                here = places | {self.term_axis: self._there(first + lane)}
                found = tirx.Cast(str(self.factors.dtype), substitute(value, here))
                return tirx.BufferStore(self.factors, found, [row * self.in_flight + lane])

            in_vectors = vectors and self.given is not None
            lines.append(over_lanes(self.in_flight, one, in_vectors, self.factors))
        return lines

    def _row(self, row: int) -> dict[Any, Any]:
        """The coordinates of a row."""
        found: dict[Any, Any] = {}
        for axis, size in reversed(self.row_sizes):
            found[axis] = _wide(row % size)
            row //= size
        return found

    def _taken(self, at: int) -> tirx.Stmt:
        """Take a loaded row of the matrix into the sums."""

        def one(lane: Any) -> tirx.Stmt:
            element = tirx.Cast(SUM, self.loaded[at * self.lanes + lane])
            lines = []
            for row in range(self.rows):
                place = row * self.lanes + lane
                factor = tirx.Cast(SUM, self.factors[row * self.in_flight + at])
                lines.append(self._set(place, self.sums[place] + factor * element))
            return tirx.stmt_seq(*lines)

        return over_lanes(self.lanes, one, False)

    def _exchanged(self) -> list[tirx.Stmt]:
        """Add up what the threads of a warp have of the same columns, and put it where all see."""
        lines = []
        distance = _WARP // 2
        while distance >= self.beside:

            def add(at: Any, distance: int = distance) -> tirx.Stmt:
                other = T.tvm_warp_shuffle_down(_ALL_LANES, self.sums[at], distance, _WARP, _WARP)
                return self._set(at, self.sums[at] + other)

            lines.append(self._of_sums(add))
            distance //= 2
        warp, lane = (part(self.thread, _WARP) for part in (tirx.floordiv, tirx.floormod))

        def stage(at: Any) -> tirx.Stmt:
            row, element = (part(at, self.lanes) for part in (tirx.floordiv, tirx.floormod))
            place = row * self.tile + lane * self.lanes + element
            return tirx.BufferStore(self.staged, self.sums[at], [warp, place])

        return [*lines, tirx.IfThenElse(lane < self.beside, self._of_sums(stage), None)]

    def _written(self, first: Any) -> tirx.Stmt:
        """Add up what the warps have, and write it."""
        count, turn = self.rows * self.tile, tirx.Var("turn", "int32")
        at = turn * _THREADS + self.thread
        sums = [self.staged[warp, at] for warp in range(_THREADS // _WARP)]
        row, column = (
            tirx.Cast("int64", part(at, self.tile)) for part in (tirx.floordiv, tirx.floormod)
        )
        places = self.places | split(row, self.row_sizes) | {self.column_axis: first + column}
        total = local("total", SUM, 1)
        lines = [
            tirx.AllocBuffer(total),
            tirx.BufferStore(total, sum(sums[1:], start=sums[0]), [0]),
            self.found.write(places, total[0]),
        ]
        written = tirx.IfThenElse(at < count, tirx.SeqStmt(lines), None)
        zero, turns = tirx.IntImm("int32", 0), tirx.IntImm("int32", -(-count // _THREADS))
        return tirx.For(turn, zero, turns, tirx.ForKind.SERIAL, written)

    def _of_sums(self, one: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
        return over_lanes(self.rows * self.lanes, one, False)

    def _set(self, at: Any, value: Any) -> tirx.Stmt:
        return tirx.BufferStore(self.sums, value, [at])


def _beside(threads: int, most: int, batches: list[tuple[Any, Any]]) -> int:
    """How many threads of a block have neighbouring columns: fewer, where blocks would be few."""
    beside = gcd(threads, most, _WARP)
    sizes = [size for _, size in batches]
    known = all(isinstance(size, int) for size in sizes)
    while known and beside > _FEWEST_BESIDE and prod(sizes) * threads // beside < _BUSY:
        beside //= 2
    return beside


def _wide(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else tirx.Cast("int64", value)
