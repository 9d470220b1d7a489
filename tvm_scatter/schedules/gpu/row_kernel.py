"""The kernel of a reduction of rows that are read by index.

Some neighbouring threads reduce a row: each reduces what it reads itself, then they exchange what
they have. Beyond the last row, and beyond the end of a row, the last element is read again: so no
check stands in front of a read, and no thread of a warp is missing when it exchanges.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.lowering.row_reductions import RowReduction

from .accesses import (
    THREADS,
    Accesses,
    Turn,
    launched,
    loaded_together,
    local,
    over_lanes,
)
from .gather_loads import independent_first
from .positions import split
from .row_form import RowForm

_WARP = 32
_ALL_THREADS = tirx.const(0xFFFFFFFF, "uint32")
#: The types that elements of other types are reduced in.
_WIDER = {
    **dict.fromkeys(("float16", "bfloat16"), "float32"),
    **dict.fromkeys(("int8", "int16"), "int32"),
    **dict.fromkeys(("uint8", "uint16"), "uint32"),
}


class RowKernel:
    """The kernel of a reduction in some form."""

    def __init__(self, reduction: RowReduction, form: RowForm) -> None:
        self.reduction, self.form = reduction, form
        self.dtype = "int32" if form.narrow else "int64"
        self.read = Accesses([reduction.value], reduction.axes[-1], form.lanes)
        self.read.loads = independent_first(self.read.loads)
        self.rows = prod(map(self._int, reduction.sizes[: reduction.rows]))
        result = str(reduction.store.buffer.dtype)
        self.result = _WIDER.get(result, result)
        self.results = local("results", self.result, form.rows)

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        block, thread = (tirx.Var(name, self.dtype) for name in ("block", "thread"))
        together = THREADS // self.form.group
        per_block = self._int(together * self.form.rows)
        first = block * per_block + tirx.floordiv(thread, self.form.group)
        member = tirx.floormod(thread, self.form.group)
        rows = [first + self._int(together * at) for at in range(self.form.rows)]
        blocks = tirx.floordiv(self.rows + (per_block - 1), per_block)
        inner = launched("threadIdx.x", thread, self._int(THREADS), self._thread(rows, member))
        return launched("blockIdx.x", block, blocks, inner)

    def _thread(self, numbers: list[Any], member: Any) -> tirx.Stmt:
        lines: list[tirx.Stmt] = [tirx.AllocBuffer(self.results)]
        rows = []
        for at, number in enumerate(numbers):
            rows.append(_Row(self, at, number))
            lines += rows[-1].begin()
        lines.append(self._reduced(rows, member))
        for row in rows:
            lines += row.exchange()
        lines += [row.write(member) for row in rows]
        return tirx.SeqStmt(lines)

    def _reduced(self, rows: list[_Row], member: Any) -> tirx.Stmt:
        """Reduce the elements that the thread reads itself."""
        if self.form.lanes == 1:
            return self._steps(rows, member, vectors=False)
        both = (self._steps(rows, member, vectors) for vectors in (True, False))
        return tirx.IfThenElse(self.read.aligned(), *both)

    def _steps(self, rows: list[_Row], member: Any, vectors: bool) -> tirx.Stmt:
        step = tirx.Var("step", self.dtype)
        first = member + step * (self.form.in_flight * self.form.group)
        if self.form.steps == 1:
            first = member
        accesses = [first + self.form.group * at for at in range(self.form.in_flight)]
        turns = [_Part(self, row, access) for row in rows for access in accesses]
        lines, values = loaded_together(turns, vectors)
        for turn, known in zip(turns, values, strict=True):
            lines.append(turn.reduce(known))
        body = tirx.SeqStmt(lines) if len(lines) > 1 else lines[0]
        if self.form.steps == 1:
            return body
        extent = self._int(self.form.steps)
        return tirx.For(step, self._int(0), extent, tirx.ForKind.SERIAL, body)

    def _int(self, value: Any) -> Any:
        return tirx.IntImm(self.dtype, int(value)) if isinstance(value, int) else value


class _Row:
    """A row that a thread has a part in."""

    def __init__(self, kernel: RowKernel, at: int, number: Any) -> None:
        self.kernel, self.at = kernel, at
        self.wanted = number
        self.number = tirx.Var("row", kernel.dtype)
        self.coordinates: dict[Any, Any] = {}

    def begin(self) -> list[tirx.Stmt]:
        """Find the row's coordinates, and set its result to the first value."""
        kernel = self.kernel
        reduction, cells = kernel.reduction, kernel.results
        axes = reduction.axes[: reduction.rows]
        places = split(self.number, zip(axes, reduction.sizes, strict=False))
        lines: list[tirx.Stmt] = [tirx.Bind(self.number, tirx.min(self.wanted, kernel.rows - 1))]
        if kernel.form.narrow and len(axes) > 1:
            # TVM would divide in 64 bits if it saw what the coordinates are.
            held = local("coordinates", kernel.dtype, len(axes))
            lines.append(tirx.AllocBuffer(held))
            for place, (axis, at) in enumerate(list(places.items())):
                lines.append(tirx.BufferStore(held, at, [place]))
                places[axis] = held[place]
        self.coordinates = {axis: _wide(axis, at) for axis, at in places.items()}
        first = tirx.Cast(kernel.result, reduction.first)
        return [*lines, tirx.BufferStore(cells, first, [self.at])]

    def take(self, value: Any) -> tirx.Stmt:
        """Take a value into the result."""
        cells, combine = self.kernel.results, self.kernel.reduction.combine
        return tirx.BufferStore(cells, combine(cells[self.at], value), [self.at])

    def exchange(self) -> list[tirx.Stmt]:
        """Reduce what the threads of the row have; the first of them then has the result."""
        lines = []
        distance = self.kernel.form.group // 2
        while distance:
            mine = self.kernel.results[self.at]
            lines.append(
                self.take(T.tvm_warp_shuffle_down(_ALL_THREADS, mine, distance, _WARP, _WARP))
            )
            distance //= 2
        return lines

    def write(self, member: Any) -> tirx.Stmt:
        """Write the result, unless the row is beyond the last one."""
        store = self.kernel.reduction.store
        result = tirx.Cast(str(store.buffer.dtype), self.kernel.results[self.at])
        places = [substitute(index, self.coordinates) for index in store.indices]
        ours = tirx.And(member < 1, self.wanted < self.kernel.rows)
        return tirx.IfThenElse(ours, tirx.BufferStore(store.buffer, result, places), None)


class _Part(Turn):
    """One access of a thread to a row."""

    def __init__(self, kernel: RowKernel, row: _Row, access: Any) -> None:
        self.kernel, self.row = kernel, row
        reduction, form = kernel.reduction, kernel.form
        count = reduction.length // form.lanes
        covered = form.group * form.in_flight * form.steps
        self.is_inside = access < count if covered > count else None
        access = tirx.min(access, count - 1) if covered > count else access
        axes = reduction.axes[reduction.rows :]
        *outer, last = reduction.sizes[reduction.rows :]
        places = split(access, zip(axes, [*outer, last // form.lanes], strict=True))
        own = {axis: _wide(axis, at) for axis, at in places.items()}
        if form.lanes > 1:
            # TVM reads a vector only where it sees that its place is a multiple of its size.
            own[axes[-1]] = own[axes[-1]] * form.lanes
        super().__init__(kernel.read, row.coordinates | own)

    def reduce(self, known: Any) -> tirx.Stmt:
        """Compute the elements and take them into the row's result."""

        def one(lane: Any) -> tirx.Stmt:
            value = self.at(self.accesses.values[0], known, lane)
            return self.row.take(tirx.Cast(self.kernel.result, value))

        taken = over_lanes(self.accesses.lanes, one, False)
        return taken if self.is_inside is None else tirx.IfThenElse(self.is_inside, taken, None)


def _wide(axis: Any, at: Any) -> Any:
    """A coordinate in the type that the function computes with."""
    return tirx.Cast(str(axis.ty.dtype), at)
