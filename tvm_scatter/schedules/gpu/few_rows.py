"""The schedule of products of a few rows with matrices whose rows lie in memory one by one.

A decoder multiplies the weights of its attention with the values of its cache. TVM's own schedules
give such a product tiles of which most rows are empty, or few threads: 133 us for 4 rows and 128
matrices of (2048, 128) halfs on an H200, which take 16 to read.

Neighbouring threads have neighbouring columns, and some of them every so many rows of the matrix.
Then they add up what they have, first in each warp, then in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule, try_inline_contiguous_spatial
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import is_by_index, varies
from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.lowering.one_reduction import is_of_each
from tvm_scatter.lowering.row_reductions import reducing_blocks
from tvm_scatter.options import current_options
from tvm_scatter.schedules.empty_launches import with_body
from tvm_scatter.selection.backend import backend_of

from .accesses import is_aligned, launched, local, over_lanes
from .gather_form import has_vectors, neighbours_along
from .positions import split

_WARP, _THREADS = 32, 256
#: The most rows, and the fewest terms of a sum.
_MOST_ROWS, _FEWEST_TERMS = 8, 64
#: Bytes of an access, and columns of a block; accesses of a thread that are on their way, and how
#: many if there are more rows than so many.
_ACCESS_BYTES, _COLUMNS = 16, 128
_IN_FLIGHT, _IN_FLIGHT_FOR_MANY, _MANY = 8, 4, 4
_ALL_LANES = tirx.const(0xFFFFFFFF, "uint32")
_SUM = "float32"


class FewRows(ScheduleRule):
    """Each matrix read once, for all rows that are multiplied with it."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no such product."""
        if not (backend_of(target).schedules_reads and current_options().products):
            return None
        found = _product(func)
        if found is None:
            return None
        function = found.function
        body = with_body(function.body, _Kernel(found).body())
        return s_tir.Schedule(function.with_body(body))


@dataclass(frozen=True)
class _Product:
    """A product of few rows.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        The function, in which everything else is computed.
    axes : list of Var
        The coordinates of a result, and then that of a term.
    sizes : list of (int or expression)
        The number of values of each.
    rows : list of Var
        The coordinates of the rows, of which only the first factor depends.
    factor : expression
        An element of the first factor, at these coordinates.
    load : TensorLoad
        The element of the matrix.
    write : callable
        The statement that writes a result, given its coordinates and its value.
    """

    function: tirx.PrimFunc
    axes: list[Any]
    sizes: list[Any]
    rows: list[Any]
    factor: Any
    load: Any
    write: Callable[[dict[Any, Any], Any], tirx.Stmt]

    @property
    def lanes(self) -> int:
        """The columns that a thread reads by one access."""
        widest = _ACCESS_BYTES // element_bytes(self.load.source)
        return gcd(neighbours_along(self.load, self.axes[-2]), self.sizes[-2], widest)


def _product(function: tirx.PrimFunc) -> _Product | None:
    if len(reducing_blocks(function)) != 1 or not isinstance(function.body, s_tir.SBlockRealize):
        return None
    schedule = s_tir.Schedule(function)
    blocks = try_inline_contiguous_spatial(schedule, normalize_prim_func(schedule) or [])
    if not blocks or len(blocks) > 2 or blocks[0].dom_kind().count("R") != 1:
        return None
    first, *others = blocks
    if not first.dom_kind().endswith("SR"):
        return None
    if others and not is_of_each(schedule, first, others[0]):
        return None
    block = schedule.get(first.block_rv)
    axes, sizes = [each.var for each in first.iters], [each.dom for each in first.iters]
    write = _writing(block.body, axes, schedule.get(others[0].block_rv) if others else None)
    factors = _factors(block.body, axes)
    if write is None or factors is None:
        return None
    factor, load = factors
    rows = [
        axis
        for axis, size in zip(axes[:-2], sizes, strict=False)
        if size != 1 and not any(varies(index, axis) for index in load.indices)
    ]
    found = _Product(schedule.mod["main"], axes, sizes, rows, factor, load, write)
    return found if _suits(found) else None


def _factors(store: Any, axes: Sequence[Any]) -> tuple[Any, Any] | None:
    """The first factor, and what is loaded for the second, whose neighbours are columns."""
    value = store.value
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return None
    if str(store.buffer.dtype) != _SUM:
        return None
    *_, column, term = axes
    for factor, other in ((value.b.a, value.b.b), (value.b.b, value.b.a)):
        load = other.value if isinstance(other, tirx.Cast) else other
        if not isinstance(load, tvm.ir.TensorLoad) or not load.indices or varies(factor, column):
            continue
        *outer, last = load.indices
        is_along = last.same_as(column) and not any(varies(index, column) for index in outer)
        by_index = is_by_index(load) or any(map(is_by_index, loads_of(factor)))
        if is_along and varies(factor, term) and not by_index:
            return (factor, load) if any(varies(index, term) for index in outer) else None
    return None


def _suits(found: _Product) -> bool:
    *outer, columns, terms = found.sizes
    counts = dict(zip(found.axes, found.sizes, strict=True))
    rows = [counts[axis] for axis in found.rows]
    if not isinstance(columns, int) or not all(isinstance(each, int) for each in rows):
        return False
    if isinstance(terms, int) and terms < _FEWEST_TERMS:
        return False
    if prod(rows) > _MOST_ROWS or 0 in outer or not has_vectors(found.load.source):
        return False
    return found.lanes > 1


def _writing(
    store: Any, axes: Sequence[Any], after: s_tir.SBlock | None
) -> Callable[[dict[Any, Any], Any], tirx.Stmt] | None:
    """How a result is written, with what is computed from it."""
    if not isinstance(store, tirx.BufferStore):
        return None
    if after is None:

        def written(places: dict[Any, Any], value: Any) -> tirx.Stmt:
            indices = [substitute(index, places) for index in store.indices]
            return tirx.BufferStore(store.buffer, value, indices)

        return written
    result = after.body
    if not isinstance(result, tirx.BufferStore):
        return None
    loads = [each for each in loads_of(result.value) if each.source.same_as(store.buffer)]
    if not loads:
        return None
    known: dict[Any, Any] = {}
    for load in loads:
        for at, index in zip(load.indices, store.indices, strict=True):
            if isinstance(at, tirx.IntImm):
                continue
            if not any(at.same_as(axis.var) for axis in after.iter_vars):
                return None
            known[at] = index
    ones = [axis.var for axis in after.iter_vars if axis.var not in known]
    if any(int(axis.dom.extent) != 1 for axis in after.iter_vars if axis.var in ones):
        return None

    def computed(places: dict[Any, Any], value: Any) -> tirx.Stmt:
        zero = tirx.IntImm("int64", 0)
        own = {at: substitute(index, places) for at, index in known.items()}
        own |= dict.fromkeys(ones, zero)

        def sum_or_load(load: Any) -> Any:
            return value if load.source.same_as(store.buffer) else load

        text = tvm_ffi.structural_map(result.value, (tvm.ir.TensorLoad, sum_or_load))
        indices = [substitute(index, own) for index in result.indices]
        return tirx.BufferStore(result.buffer, substitute(text, own), indices)

    return computed


class _Kernel:
    """The kernel of a product."""

    def __init__(self, found: _Product) -> None:
        self.found = found
        self.lanes = found.lanes
        counts = dict(zip(found.axes, found.sizes, strict=True))
        self.row_sizes = [(axis, counts[axis]) for axis in found.rows]
        self.rows = prod(size for _, size in self.row_sizes)
        columns = found.sizes[-2]
        #: Threads beside each other, and those that have every so many terms.
        self.beside = gcd(columns // self.lanes, _COLUMNS // self.lanes, _WARP)
        self.groups = _THREADS // self.beside
        self.tile = self.beside * self.lanes
        self.terms = self._wide(found.sizes[-1])
        outer = [pair for pair in zip(found.axes[:-2], found.sizes, strict=False) if pair[1] != 1]
        #: What a block has one place of.
        self.tile_axis = tirx.Var("tile", "int64")
        batches = [pair for pair in outer if not any(map(pair[0].same_as, found.rows))]
        self.grid = [*batches, (self.tile_axis, columns // self.tile)]
        ones = [axis for axis in found.axes[:-2] if counts[axis] == 1]
        self.ones = dict.fromkeys(ones, tirx.IntImm("int64", 0))
        self.block, self.thread = tirx.Var("block", "int64"), tirx.Var("thread", "int32")
        self.in_flight = _IN_FLIGHT_FOR_MANY if self.rows > _MANY else _IN_FLIGHT
        turns, dtype = range(self.in_flight), found.load.source.dtype
        self.loaded = [local(f"loaded{at}", dtype, self.lanes) for at in turns]
        self.factors = [local(f"factors{at}", _SUM, self.rows) for at in turns]
        self.sums = local("sums", _SUM, self.rows * self.lanes)
        warps = _THREADS // _WARP
        self.staged = tirx.decl_buffer(
            (warps, self.rows * self.tile), _SUM, "staged", scope="shared"
        )

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        place = split(self.block, self.grid)
        first = place.pop(self.tile_axis) * self.tile
        self.places = {**place, **self.ones}
        lane = tirx.Cast("int64", tirx.floormod(self.thread, self.beside))
        group = tirx.Cast("int64", tirx.floordiv(self.thread, self.beside))
        self.column = first + lane * self.lanes
        lines: list[tirx.Stmt] = [
            tirx.AllocBuffer(each) for each in (*self.loaded, *self.factors, self.sums, self.staged)
        ]
        lines.append(
            self._each(self.rows * self.lanes, lambda at: self._set(at, tirx.const(0.0, _SUM)))
        )
        paths = [self._steps(group, vectors) for vectors in (True, False)]
        lines.append(tirx.IfThenElse(is_aligned(self.found.load.source, self.lanes), *paths))
        lines += self._exchanged()
        lines.append(self._written(first))
        inner = launched(
            "threadIdx.x", self.thread, tirx.IntImm("int32", _THREADS), tirx.SeqStmt(lines)
        )
        blocks = prod((self._wide(size) for _, size in self.grid), start=self._wide(1))
        return launched("blockIdx.x", self.block, blocks, inner)

    def _steps(self, group: Any, vectors: bool) -> tirx.Stmt:
        """Take every so many terms into the sums of the thread."""
        step = tirx.Var("step", "int64")
        together = self.groups * self.in_flight
        steps = tirx.floordiv(self.terms + (together - 1), together)
        terms = [step * together + at * self.groups + group for at in range(self.in_flight)]
        lines: list[tirx.Stmt] = []
        for at, term in enumerate(terms):
            lines += self._load(at, tirx.min(term, self.terms - 1), vectors)
        whole = isinstance(self.found.sizes[-1], int) and self.found.sizes[-1] % together == 0
        for at, term in enumerate(terms):
            taken = self._taken(at)
            lines.append(taken if whole else tirx.IfThenElse(term < self.terms, taken, None))
        zero = tirx.IntImm("int64", 0)
        return tirx.For(step, zero, steps, tirx.ForKind.SERIAL, tirx.SeqStmt(lines))

    def _load(self, at: int, term: Any, vectors: bool) -> list[tirx.Stmt]:
        found = self.found
        *_, column_axis, term_axis = found.axes
        places = {**self.places, term_axis: term}

        def one(lane: Any) -> tirx.Stmt:
            here = places | {column_axis: self.column + lane}
            indices = [substitute(index, here) for index in found.load.indices]
            return tirx.BufferStore(
                self.loaded[at], tirx.BufferLoad(found.load.source, indices), [lane]
            )

        lines = [over_lanes(self.lanes, one, vectors, found.load.source)]
        for row in range(self.rows):
            here = places | self._row(row)
            value = tirx.Cast(_SUM, substitute(found.factor, here))
            lines.append(tirx.BufferStore(self.factors[at], value, [row]))
        return lines

    def _row(self, row: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for axis, size in reversed(self.row_sizes):
            found[axis] = tirx.IntImm("int64", row % size)
            row //= size
        return found

    def _taken(self, at: int) -> tirx.Stmt:
        def one(lane: Any) -> tirx.Stmt:
            element = tirx.Cast(_SUM, self.loaded[at][lane])
            places = [row * self.lanes + lane for row in range(self.rows)]
            products = [self.factors[at][row] * element for row in range(self.rows)]
            pairs = zip(places, products, strict=True)
            return tirx.stmt_seq(
                *(self._set(place, self.sums[place] + each) for place, each in pairs)
            )

        return over_lanes(self.lanes, one, False)

    def _exchanged(self) -> list[tirx.Stmt]:
        """Add up what the threads of a warp have of the same columns, and put it where all see."""
        lines = []
        distance = _WARP // 2
        while distance >= self.beside:

            def add(at: Any, distance: int = distance) -> tirx.Stmt:
                other = T.tvm_warp_shuffle_down(_ALL_LANES, self.sums[at], distance, _WARP, _WARP)
                return self._set(at, self.sums[at] + other)

            lines.append(self._each(self.rows * self.lanes, add))
            distance //= 2
        warp = tirx.floordiv(self.thread, _WARP)
        lane = tirx.floormod(self.thread, _WARP)

        def stage(at: Any) -> tirx.Stmt:
            row, element = tirx.floordiv(at, self.lanes), tirx.floormod(at, self.lanes)
            place = row * self.tile + lane * self.lanes + element
            return tirx.BufferStore(self.staged, self.sums[at], [warp, place])

        staged = self._each(self.rows * self.lanes, stage)
        lines.append(tirx.IfThenElse(lane < self.beside, staged, None))
        return lines

    def _written(self, first: Any) -> tirx.Stmt:
        """Add up what the warps have, and write it."""
        count = self.rows * self.tile
        turn = tirx.Var("turn", "int32")
        at = turn * _THREADS + self.thread
        total = self.staged[0, at]
        for warp in range(1, _THREADS // _WARP):
            total = total + self.staged[warp, at]
        row, column = tirx.floordiv(at, self.tile), tirx.floormod(at, self.tile)
        places = dict(self.places)
        places[self.found.axes[-2]] = first + tirx.Cast("int64", column)
        places |= split(tirx.Cast("int64", row), self.row_sizes) if self.row_sizes else {}
        total_cell = local("total", _SUM, 1)
        lines = [
            tirx.AllocBuffer(total_cell),
            tirx.BufferStore(total_cell, total, [0]),
            self.found.write(places, total_cell[0]),
        ]
        written = tirx.IfThenElse(at < count, tirx.SeqStmt(lines), None)
        zero, turns = tirx.IntImm("int32", 0), tirx.IntImm("int32", -(-count // _THREADS))
        return tirx.For(turn, zero, turns, tirx.ForKind.SERIAL, written)

    def _each(self, count: int, one: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
        return over_lanes(count, one, False)

    def _set(self, at: Any, value: Any) -> tirx.Stmt:
        return tirx.BufferStore(self.sums, value, [at])

    def _wide(self, value: Any) -> Any:
        return tirx.IntImm("int64", value) if isinstance(value, int) else tirx.Cast("int64", value)
