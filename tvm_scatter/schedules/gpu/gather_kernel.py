"""The kernel of a function that reads by index.

A thread first reads what all its elements are computed from, and then computes and writes them: so
the reads do not wait for each other. Beyond the last element it reads the last one again instead
of checking in front of each read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from tvm import tirx

from tvm_scatter.emit.computed_updates import substitute

from .accesses import (
    FIRST,
    THREADS,
    Accesses,
    Known,
    Turn,
    launched,
    loaded_together,
    local,
    over_lanes,
)
from .gather_form import INT32_VALUES, GatherForm, Gathering
from .positions import divides, split

_NARROW = "uint32"


class Kernel:
    """The kernel of a function in some form."""

    def __init__(self, gathering: Gathering, form: GatherForm) -> None:
        self.gathering, self.form = gathering, form
        self.dtype = "int32" if form.narrow else "int64"
        self.read = Accesses(gathering.values, gathering.axes[-1], form.lanes)
        *outer, row = gathering.sizes
        self.sizes = [*outer, row if form.lanes == 1 else row // form.lanes]
        self.accesses = prod(self.integer(size) for size in self.sizes)
        self.divides = not form.narrow and any(
            divides(value, gathering.axes, self.sizes) for value in gathering.values
        )

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        block, thread = (tirx.Var(name, self.dtype) for name in ("block", "thread"))
        first = block * (THREADS * self.form.in_flight) + thread
        positions = [first + self.integer(THREADS * at) for at in range(self.form.in_flight)]
        per_block = self.integer(THREADS * self.form.in_flight)
        blocks = tirx.floordiv(self.accesses + (per_block - 1), per_block)
        inner = launched("threadIdx.x", thread, self.integer(THREADS), self._thread(positions))
        return launched("blockIdx.x", block, blocks, inner)

    def _thread(self, positions: Sequence[Any]) -> tirx.Stmt:
        lines: list[Any] = []
        turns = []
        for position in positions:
            turns.append(_Element(self, tirx.min(position, self.accesses - 1), position))
            lines += turns[-1].begin()
        if self.form.lanes == 1:
            return tirx.SeqStmt([*lines, *_steps(turns, vectors=False)])
        both = [tirx.SeqStmt(_steps(turns, vectors)) for vectors in (True, False)]
        aligned = self.read.aligned(*(each.buffer for each in self.gathering.stores))
        return tirx.SeqStmt([*lines, tirx.IfThenElse(aligned, *both)])

    def integer(self, value: Any) -> Any:
        """A number of the type of positions."""
        return tirx.IntImm(self.dtype, int(value)) if isinstance(value, int) else value


def _steps(turns: Sequence[_Element], vectors: bool) -> list[tirx.Stmt]:
    """Read for all turns, then compute and write."""
    lines, values = loaded_together(turns, vectors)
    for turn, known in zip(turns, values, strict=True):
        lines += turn.write(known, vectors)
    return lines


class _Element(Turn):
    """One access of a thread, which writes the elements that it computes."""

    def __init__(self, kernel: Kernel, position: Any, wanted: Any) -> None:
        super().__init__(kernel.read, {})
        self.kernel, self.position = kernel, position
        self.is_inside = wanted < kernel.accesses
        self.lanes = kernel.form.lanes
        #: Where the first element is written.
        self.written: dict[Any, Any] = {}

    def begin(self) -> list[tirx.Stmt]:
        """Find the coordinates of the first element."""
        position = tirx.Var("position", self.kernel.dtype)
        axes = self.kernel.gathering.axes
        self.written = split(position, zip(axes, self.kernel.sizes, strict=True))
        lines: list[tirx.Stmt] = [tirx.Bind(position, self.position)]
        if self.kernel.divides:
            lines += self._divided(position)
        elif not self.kernel.form.narrow or len(self.written) == 1:
            self.coordinates = {axis: self._first(axis, at) for axis, at in self.written.items()}
        else:
            # TVM would divide in 64 bits if it saw what the coordinates are.
            cells = local("coordinates", self.kernel.dtype, len(self.written))
            lines.append(tirx.AllocBuffer(cells))
            for number, (axis, at) in enumerate(self.written.items()):
                lines.append(tirx.BufferStore(cells, at, [number]))
                self.coordinates[axis] = self._first(axis, cells[number])
        self.written = {axis: self._first(axis, at) for axis, at in self.written.items()}
        return lines

    def _divided(self, position: Any) -> list[tirx.Stmt]:
        """Find the coordinates by divisions of 32 bits, if these count all accesses.

        One of 64 bits takes as long as four of 32.
        """
        axes = self.kernel.gathering.axes
        cells = [
            local("coordinate", "int32" if isinstance(size, int) else self.kernel.dtype, 1)
            for size in self.kernel.sizes
        ]
        choices = []
        for dtype in (_NARROW, self.kernel.dtype):
            sizes = [tirx.Cast(dtype, self.kernel.integer(size)) for size in self.kernel.sizes]
            places = split(tirx.Cast(dtype, position), zip(axes, sizes, strict=True))
            stores = (
                tirx.BufferStore(cell, tirx.Cast(str(cell.dtype), places[axis]), [0])
                for axis, cell in zip(axes, cells, strict=True)
            )
            choices.append(tirx.stmt_seq(*stores))
        for axis, cell in zip(axes, cells, strict=True):
            self.coordinates[axis] = self._first(axis, cell[0])
        counted = self.kernel.accesses < INT32_VALUES
        return [*map(tirx.AllocBuffer, cells), tirx.IfThenElse(counted, *choices)]

    def _first(self, axis: Any, at: Any) -> Any:
        """The first element's coordinate, in the type that the function computes with."""
        wide = tirx.Cast(str(axis.ty.dtype), at)
        # TVM writes a vector only where it sees that its place is a multiple of its size.
        return wide * self.lanes if axis.same_as(self.kernel.gathering.axes[-1]) else wide

    def write(self, known: Known, vectors: bool) -> list[tirx.Stmt]:
        """Compute the elements and write them, unless they are beyond the last one."""
        stores, read = self.kernel.gathering.stores, self.accesses
        if self.lanes == 1:
            lines, values = self._computed(known, FIRST)
            written = [
                self._element(store, FIRST, value)
                for store, value in zip(stores, values, strict=True)
            ]
            return [*lines, self._inside(tirx.stmt_seq(*written))]
        if read.copied is not None and read.varies(read.copied[0]):
            find, [store] = known[read.copied[0].value], stores
            return [self._inside(self._vector(store, find, vectors))]
        results = [local("result", store.buffer.dtype, self.lanes) for store in stores]

        def one(lane: Any) -> tirx.Stmt:
            lines, values = self._computed(known, lane)
            kept = [
                tirx.BufferStore(result, value, [lane])
                for result, value in zip(results, values, strict=True)
            ]
            return tirx.stmt_seq(*lines, *kept)

        computed = over_lanes(self.lanes, one, False)
        vector = [
            self._vector(store, result.__getitem__, vectors)
            for store, result in zip(stores, results, strict=True)
        ]
        written = self._inside(tirx.stmt_seq(*vector))
        return [*map(tirx.AllocBuffer, results), computed, written]

    def _computed(self, known: Known, lane: Any) -> tuple[list[tirx.Stmt], list[Any]]:
        """The elements of a lane, and the statements that compute what they share.

        TVM would write a variable's value wherever it is used.
        """
        bound, values = self.kernel.gathering.bound, self.accesses.values
        lines: list[tirx.Stmt] = []
        own: Known = dict(known)
        for each, value in zip(bound, values, strict=False):
            cell = local(each.var.name, each.var.ty.dtype, 1)
            store = tirx.BufferStore(cell, self.at(value, own, lane), [0])
            lines += [tirx.AllocBuffer(cell), store]
            own[each.var] = partial(_only, cell)
        return lines, [self.at(value, own, lane) for value in values[len(bound) :]]

    def _element(self, store: tirx.BufferStore, lane: Any, value: Any) -> tirx.Stmt:
        places = self.places(self.written, lane)
        indices = [substitute(index, places) for index in store.indices]
        return tirx.BufferStore(store.buffer, value, indices)

    def _vector(self, store: tirx.BufferStore, find: Any, vectors: bool) -> tirx.Stmt:
        """Write the elements of all lanes."""
        return over_lanes(
            self.lanes,
            lambda lane: self._element(store, lane, find(lane)),
            vectors,
            store.buffer,
        )

    def _inside(self, statement: tirx.Stmt) -> tirx.Stmt:
        return tirx.IfThenElse(self.is_inside, statement, None)


def _only(cell: Any, _lane: Any) -> Any:
    """What a register of one element holds, which all lanes know."""
    return cell[0]
