"""The kernel of a transposition: through a tile in shared memory, so that all accesses are in rows.

A block reads a tile whose rows lie side by side, and writes it along its columns, which lie side by
side in the result. A thread of a warp reads 4 bytes beside its neighbour's, and all that it reads
before it writes any.

Of elements of fewer bytes it takes squares: two rows of two, or four rows of four. It turns them in
registers, so that what it writes has 4 bytes as well. The first rows of all squares stand together
in the tile, then the second ones: so neighbours read rows that are next to each other, of a length
that is odd in words. No two threads of a warp then meet at a bank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .accesses import is_aligned, launched, local, over_lanes
from .gather_form import INT32_VALUES, has_vectors
from .transposition import Access, Transposition, total_of

_WARP = 32
_WARPS = 8
_WORD = 4
#: Tiles that keep a large GPU busy: four for each multiprocessor. With so many, they may be larger.
_ENOUGH_TILES = 528
#: Bytes of a larger tile at most.
_TILE_BYTES = 1 << 14


@dataclass(frozen=True)
class TransposeForm:
    """How a transposition is spread.

    Attributes
    ----------
    lanes : int
        Elements of an access, and along a side of a square.
    columns, rows : int
        Elements of a tile along the axis of what is read, and of what is written.
    narrow : bool
        Whether 32 bits number the elements.
    """

    lanes: int
    columns: int
    rows: int
    narrow: bool

    @property
    def copies(self) -> int:
        """Elements that a thread computes."""
        return self.rows * self.columns // (_WARP * _WARPS)

    def __str__(self) -> str:
        what = f"{self.lanes} elements" if self.lanes > 1 else "1 element"
        return f"tiles of {self.rows} x {self.columns}, {what} to an access"


def form_of(found: Transposition) -> TransposeForm:
    """How a transposition is spread."""
    lanes = _lanes(found)
    side = _WARP * lanes
    total = total_of(found.sizes)
    # All tensors have at most as many elements as the result, rounded up to whole tiles.
    reach = None if total is None else _reach(found)
    narrow = reach is not None and 4 * reach < INT32_VALUES
    columns = rows = side
    if total is None or total >= _ENOUGH_TILES * (2 * side) ** 2:
        width = max(_bits(found) // 8, 1)
        if 2 * columns * rows * width <= _TILE_BYTES and _is_longer(found.sizes[-1], side):
            rows *= 2
        if 2 * columns * rows * width <= _TILE_BYTES and _is_longer(
            found.sizes[found.across], side
        ):
            columns *= 2
    return TransposeForm(lanes, columns, rows, narrow)


def _is_longer(size: Any, side: int) -> bool:
    return not isinstance(size, int) or size > side


def _reach(found: Transposition) -> int:
    """One more than the largest place of any access."""
    places = []
    for each in (found.written, *found.reads):
        steps = zip(each.steps, found.sizes, strict=True)
        places.append(each.first + sum(step * size for step, size in steps))
    return max(places)


def _bits(found: Transposition) -> int:
    return found.written.bits if found.early else found.turned.bits


def _lanes(found: Transposition) -> int:
    """Elements of a word, if all tensors have the same number and their rows are whole words."""
    written, across = found.written, found.across
    sides = (found.sizes[across], found.sizes[-1])
    moving = [each for each in found.reads if not _still(each, across) or not _still(each, -1)]
    bits = {each.bits for each in (written, *moving)}
    if len(bits) != 1 or not all(has_vectors(each.buffer) for each in (written, *moving)):
        return 1
    lanes = max(8 * _WORD // bits.pop(), 1)
    if lanes == 1 or not all(
        isinstance(side, int) and side % lanes == 0 and side >= _WARP * lanes // 2 for side in sides
    ):
        return 1
    for each in (written, *moving):
        if not isinstance(each.first, int) or each.first % lanes:
            return 1
        if not all(
            isinstance(step, int) and (step == 1 or step % lanes == 0) for step in each.steps
        ):
            return 1
        if sum(step == 1 for step in each.steps) > 1:
            return 1
    return lanes


def _still(access: Access, axis: int) -> bool:
    return isinstance(access.steps[axis], int) and access.steps[axis] == 0


class TransposeKernel:
    """The kernel of a transposition in some form."""

    def __init__(self, found: Transposition, form: TransposeForm) -> None:
        self.found, self.form = found, form
        self.dtype = "int32" if form.narrow else "int64"
        self.flat: dict[Any, Any] = {}
        for each in (found.written, *found.reads):
            if not any(each.buffer.same_as(buffer) for buffer in self.flat):
                size = prod(_wide(size) for size in each.buffer.shape)
                self.flat[each.buffer] = tirx.decl_buffer(
                    (size,), str(each.buffer.dtype), each.buffer.name, data=each.buffer.data
                )
        held = str(found.written.buffer.dtype if found.early else found.turned.buffer.dtype)
        # A row is an odd number of words, or of what is wider than a word.
        pad = max(_WORD * 8 // int(tvm.DataType(held).bits), 1) if held != "bool" else _WORD
        self.pitch = form.columns + pad
        self.tile = tirx.decl_buffer((form.rows * self.pitch,), held, "tile", scope="shared")
        self.down = form.columns // (_WARP * form.lanes)
        self.passes = form.rows // _WARPS
        self.values = local("values", held, self.passes * self.down * form.lanes)

    # Blocks and threads.

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        block, thread = (tirx.Var(name, self.dtype) for name in ("block", "thread"))
        found, form = self.found, self.form
        sizes = [self._int(size) for size in found.sizes]
        across = found.across
        rows = self._tiles(sizes[-1], form.rows)
        columns = self._tiles(sizes[across], form.columns)
        outer = [at for at in range(len(sizes) - 1) if at != across]
        blocks = prod([sizes[at] for at in outer], start=rows * columns)
        row = tirx.floormod(block, rows) * form.rows
        column = tirx.floormod(tirx.floordiv(block, rows), columns) * form.columns
        number = tirx.floordiv(block, rows * columns)
        coordinates: dict[int, Any] = {}
        for at in reversed(outer):
            coordinates[at] = tirx.floormod(number, sizes[at]) if at != outer[0] else number
            number = tirx.floordiv(number, sizes[at])
        lines: list[tirx.Stmt] = [
            tirx.DeclBuffer(flat, data=buffer.data) for buffer, flat in self.flat.items()
        ]
        lines += [tirx.AllocBuffer(self.tile), tirx.AllocBuffer(self.values)]
        self.row, self.column = (tirx.Var(name, self.dtype) for name in ("row", "column"))
        lines += [tirx.Bind(self.row, tirx.floordiv(row, form.lanes))]
        lines += [tirx.Bind(self.column, tirx.floordiv(column, form.lanes))]
        self.bases: list[Any] = []
        for each in (found.written, *found.reads):
            base = self._int(each.first) + sum(
                (coordinates[at] * self._int(each.steps[at]) for at in outer), self._int(0)
            )
            variable = tirx.Var("base", self.dtype)
            lines.append(tirx.Bind(variable, tirx.floordiv(base, form.lanes)))
            self.bases.append(variable)
        lane = tirx.floormod(thread, self._int(_WARP))
        warp = tirx.floordiv(thread, self._int(_WARP))
        lines += self._read(lane, warp)
        lines += self._write(lane, warp)
        inner = launched("threadIdx.x", thread, self._int(_WARP * _WARPS), tirx.SeqStmt(lines))
        return launched("blockIdx.x", block, blocks, inner)

    def _tiles(self, size: Any, side: int) -> Any:
        return tirx.floordiv(size + (side - 1), self._int(side))

    # From memory into the tile.

    def _read(self, lane: Any, warp: Any) -> list[tirx.Stmt]:
        form = self.form
        places = []
        for at in range(self.passes):
            for beside in range(self.down):
                # Squares: a row of the tile is the at-th row of a square.
                place = (warp + _WARPS * at, lane + _WARP * beside)
                places.append(place)

        def read(vectors: bool) -> tirx.Stmt:
            return tirx.SeqStmt([self._read_one(i, *p, vectors) for i, p in enumerate(places)])

        lines = [self._either(read, [each for each in self.found.reads if self._lies(each)])]
        for number, (row, column) in enumerate(places):
            slot = tirx.floormod(row, form.lanes) * (form.rows // form.lanes)
            slot = (slot + tirx.floordiv(row, form.lanes)) * self.pitch + column * form.lanes

            def put(which: Any, number: int = number, slot: Any = slot) -> tirx.Stmt:
                value = self.values[number * form.lanes + which]
                return tirx.BufferStore(self.tile, value, [slot + self._int(which)])

            lines.append(over_lanes(form.lanes, put, form.lanes > 1))
        return lines

    def _read_one(self, number: int, row: Any, column: Any, vectors: bool) -> tirx.Stmt:
        """Read an access beyond the last row or column at the last one, without a check."""
        found, form = self.found, self.form
        size, width = (self._int(found.sizes[at]) for at in (-1, found.across))
        row = self.row * form.lanes + row
        column = self.column + column
        if not _divides(found.sizes[-1], form.rows):
            row = tirx.min(row, size - 1)
        if not _divides(found.sizes[found.across], form.columns):
            column = tirx.min(column, tirx.floordiv(width, form.lanes) - 1)

        def one(which: Any) -> tirx.Stmt:
            value = self._computed(found.held, row, column * form.lanes, 0, which)
            return tirx.BufferStore(self.values, value, [number * form.lanes + which])

        # What is computed is no vector of TVM's; the compiler of CUDA joins neighbours it reads.
        plain = isinstance(found.held, tvm.ir.TensorLoad)
        return over_lanes(form.lanes, one, vectors and plain)

    def _lies(self, access: Access) -> bool:
        """Whether a tensor is read side by side where a tile is read."""
        return not _still(access, self.found.across)

    # From the tile into memory.

    def _write(self, lane: Any, warp: Any) -> list[tirx.Stmt]:
        form, found = self.form, self.found
        lanes = form.lanes
        held = str(self.tile.dtype)
        lines: list[tirx.Stmt] = []
        for at in range(form.columns // lanes // _WARPS):
            for beside in range(form.rows // lanes // _WARP):
                row, column = lane + _WARP * beside, warp + _WARPS * at
                square = local("square", held, lanes * lanes)
                lines.append(tirx.AllocBuffer(square))
                for line in range(lanes):
                    slot = (row + line * (form.rows // lanes)) * self.pitch + column * lanes

                    lines.append(self._taken(square, line * lanes, slot))
                turned = local("turned", str(found.written.buffer.dtype), lanes * lanes)
                lines.append(tirx.AllocBuffer(turned))
                lines.append(self._stored(row, column, square, turned))
        return lines

    def _taken(self, square: Any, first: int, slot: Any) -> tirx.Stmt:
        """Read a row of a square from the tile."""

        def take(which: Any) -> tirx.Stmt:
            load = tirx.BufferLoad(self.tile, [slot + self._int(which)])
            return tirx.BufferStore(square, load, [first + which])

        return over_lanes(self.form.lanes, take, self.form.lanes > 1)

    def _stored(self, row: Any, column: Any, square: Any, turned: Any) -> tirx.Stmt:
        """Write the square of a thread, unless it is beyond the last row or column."""
        form, found, lanes = self.form, self.found, self.form.lanes
        row, column = self.row + row, self.column + column
        inside = []
        if not _divides(found.sizes[-1], form.rows):
            inside.append(row * lanes < self._int(found.sizes[-1]))
        if not _divides(found.sizes[found.across], form.columns):
            inside.append(column * lanes < self._int(found.sizes[found.across]))
        lines: list[tirx.Stmt] = []
        for line in range(lanes):
            for which in range(lanes):
                value = square[which * lanes + line]
                if not found.early:
                    value = self._computed(
                        found.value, row * lanes, column * lanes, which, line, value
                    )
                lines.append(tirx.BufferStore(turned, value, [line * lanes + which]))
        flat = self.flat[found.written.buffer]

        def write(vectors: bool) -> tirx.Stmt:
            stores = []
            for line in range(lanes):

                def put(which: Any, line: int = line) -> tirx.Stmt:
                    place = self._place(0, row * lanes, column * lanes + line)
                    place = place + self._int(which)
                    return tirx.BufferStore(flat, turned[line * lanes + which], [place])

                stores.append(over_lanes(lanes, put, vectors))
            return tirx.SeqStmt(stores) if len(stores) > 1 else stores[0]

        lines.append(self._either(write, [found.written]))
        body = tirx.SeqStmt(lines)
        return tirx.IfThenElse(tirx.all(*inside), body, None) if inside else body

    # What an element is computed from.

    def _computed(
        self, value: Any, row: Any, column: Any, down: Any, beside: Any, turned: Any = None
    ) -> Any:
        """An expression at some place; ``turned`` is what the tile has of it."""
        found = self.found
        numbers = {each.node: at for at, each in enumerate(found.reads, 1)}

        def load(node: Any) -> Any:
            if turned is not None and node.same_as(found.turned.node):
                return turned
            number = next(at for each, at in numbers.items() if each.same_as(node))
            access = found.reads[number - 1]
            place = self._place(number, row, column)
            for axis, more in ((-1, down), (found.across, beside)):
                step = access.steps[axis]
                if not (isinstance(step, int) and step == 0):
                    place = place + self._int(more) * self._int(step)
            return tirx.BufferLoad(self.flat[access.buffer], [place])

        return tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, load))

    def _place(self, number: int, row: Any, column: Any) -> Any:
        """Where an access is at a row and a column of the result's last axis and the other one."""
        access = (self.found.written, *self.found.reads)[number]
        place = self.bases[number] * self.form.lanes
        for at, step in ((row, access.steps[-1]), (column, access.steps[self.found.across])):
            if not (isinstance(step, int) and step == 0):
                place = place + at * self._int(step)
        return place

    def _either(self, make: Callable[[bool], tirx.Stmt], accesses: Sequence[Access]) -> tirx.Stmt:
        """With vectors where all of these tensors lie where they may be accessed so, or without."""
        if self.form.lanes == 1:
            return make(False)
        buffers: list[Any] = []
        for each in accesses:
            if not any(each.buffer.same_as(buffer) for buffer in buffers):
                buffers.append(each.buffer)
        aligned = tirx.all(*(is_aligned(self.flat[buffer], self.form.lanes) for buffer in buffers))
        return tirx.IfThenElse(aligned, make(True), make(False))

    def _int(self, value: Any) -> Any:
        if isinstance(value, int):
            return tirx.IntImm(self.dtype, value)
        return tirx.Cast(self.dtype, value)


def _divides(size: Any, side: int) -> bool:
    return isinstance(size, int) and size % side == 0


def _wide(size: Any) -> Any:
    return tirx.Cast("int64", size)
