"""The kernel that sums the exponentials of long rows, each by a block that reads it once.

A thread knows the greatest element that it has met, and sums of distances from that one. When it
meets a greater one, it corrects its sums. So no row is read a second time, as in "Online normalizer
calculation for softmax", arXiv 1805.02867, 2018. It reads several elements before it looks at any,
and corrects its sums once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target
from tvm.tirx.buffer import is_buffer_var
from tvm.tirx.script import builder as T

from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.lowering.exponential_sums import SUMS_EXPONENTIALS
from tvm_scatter.selection.backend import backend_of

from .accesses import launched, local
from .gather_form import INT32_VALUES

_WARP = 32
_THREADS = 512
#: Bytes that a thread has on their way.
_IN_FLIGHT = 32
_ALL_LANES = tirx.const(0xFFFFFFFF, "uint32")


class ExponentialSums(ScheduleRule):
    """Each row by a block, which reads it once."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it sums no exponentials of rows."""
        if SUMS_EXPONENTIALS not in (func.attrs or {}) or not backend_of(target).schedules_reads:
            return None
        # Sizes that no tensor says are parameters, too.
        tensors = [each for each in func.params if is_buffer_var(each)]
        block = s_tir.SBlock([], [], [], "root", _Kernel(*tensors).body())
        return s_tir.Schedule(func.with_body(s_tir.SBlockRealize([], True, block)))


class _Kernel:
    """The kernel for a tensor and the numbers of its rows."""

    def __init__(self, values: Any, *numbers: Any) -> None:
        *outer, self.width = (int(s) if isinstance(s, tirx.IntImm) else s for s in values.shape)
        self.outer = outer
        known = all(isinstance(size, int) for size in outer)
        narrow = known and prod(outer) * self.width + _THREADS * _IN_FLIGHT < INT32_VALUES
        self.index = "int32" if narrow else "int64"
        self.dtype = str(numbers[0].dtype)
        self.values, *self.numbers = self.flat = [self._line(each) for each in (values, *numbers)]
        self.given = (values, *numbers)
        self.in_flight = max(_IN_FLIGHT // element_bytes(values), 1)
        self.loaded = local("loaded", self.dtype, self.in_flight)
        names = ("greatest", "highest", "total", "distances")
        self.greatest, self.highest, self.total, self.distances = (
            local(name, self.dtype, 1) for name in names
        )
        self.row, self.thread = (tirx.Var(name, self.index) for name in ("row", "thread"))

    def body(self) -> tirx.Stmt:
        """The loops over blocks and threads, and what a thread does."""
        held = (self.loaded, self.greatest, self.highest, self.total, self.distances)
        lines: list[tirx.Stmt] = [
            tirx.DeclBuffer(line, data=given.data)
            for line, given in zip(self.flat, self.given, strict=True)
        ]
        lines += [tirx.AllocBuffer(each) for each in held]
        lines += [_set(self.greatest, tirx.min_value(self.dtype))]
        lines += [_set(each, self._number(0)) for each in (self.total, self.distances)]
        step = tirx.Var("step", self.index)
        steps = self._int(-(-self.width // (self.in_flight * _THREADS)))
        loop = tirx.For(step, self._int(0), steps, tirx.ForKind.SERIAL, self._step(step))
        lines += [loop, *self._together(), self._write()]
        inner = launched("threadIdx.x", self.thread, self._int(_THREADS), tirx.SeqStmt(lines))
        rows = prod((self._int(size) for size in self.outer), start=self._int(1))
        return launched("blockIdx.x", self.row, rows, inner)

    def _step(self, step: Any) -> tirx.Stmt:
        """Take some elements of the row into the sums of the thread."""
        first = step * (self.in_flight * _THREADS) + self.thread
        places = [first + _THREADS * at for at in range(self.in_flight)]
        lines = [self._load(at, place) for at, place in enumerate(places)]
        # Beyond the end the last element is read again: that changes no maximum.
        highest = self.greatest[0]
        for at in range(self.in_flight):
            highest = tirx.max(highest, self.loaded[at])
        # Only the last step has fewer elements.
        lines += [_set(self.highest, highest), *self._corrected(step * self.in_flight)]
        lines += [_set(self.greatest, self.highest[0])]
        for at, place in enumerate(places):
            taken = self._taken(self.loaded[at] - self.greatest[0])
            rest = self.width % (self.in_flight * _THREADS)
            always = rest == 0 or (at + 1) * _THREADS <= rest
            lines.append(taken if always else tirx.IfThenElse(place < self.width, taken, None))
        return tirx.SeqStmt(lines)

    def _load(self, at: int, place: Any) -> tirx.Stmt:
        place = self.row * self.width + tirx.min(place, self.width - 1)
        return tirx.BufferStore(self.loaded, tirx.Cast(self.dtype, self.values[place]), [at])

    def _corrected(self, count: Any) -> list[tirx.Stmt]:
        """Make the sums those of distances from the highest element, which may be a new one.

        Parameters
        ----------
        count : expression
            How many elements the thread has taken into its sums.
        """
        lower = self.greatest[0] - self.highest[0]
        lines = [_set(self.total, self.total[0] * tirx.exp(lower))]
        if self._sums_distances:
            # Of no element, the distance may be infinite.
            lower = tirx.Select(count > 0, tirx.Cast(self.dtype, count) * lower, self._number(0))
            lines.append(_set(self.distances, self.distances[0] + lower))
        return lines

    def _taken(self, distance: Any) -> tirx.Stmt:
        lines = [_set(self.total, self.total[0] + tirx.exp(distance))]
        if self._sums_distances:
            lines.append(_set(self.distances, self.distances[0] + distance))
        return tirx.SeqStmt(lines) if len(lines) > 1 else lines[0]

    def _together(self) -> list[tirx.Stmt]:
        """Make the sums of each thread those of the block."""
        lines = [_set(self.highest, self.greatest[0])]
        lines += self._exchanged(self.highest, tirx.max)
        turns = tirx.floordiv(self.width - 1 - self.thread, self._int(_THREADS))
        lines += self._corrected(turns + 1)
        sums = [self.total, self.distances] if self._sums_distances else [self.total]
        for each in sums:
            lines += self._exchanged(each, lambda one, other: one + other)
        return lines

    def _exchanged(self, cell: Any, combine: Callable[[Any, Any], Any]) -> list[tirx.Stmt]:
        """Combine what the threads of the block have; each of them then has the result."""
        warps = _THREADS // _WARP
        staged = tirx.decl_buffer((warps,), self.dtype, f"{cell.name}_of_warps", scope="shared")
        lines: list[tirx.Stmt] = [tirx.AllocBuffer(staged)]
        distance = _WARP // 2
        while distance:
            other = T.tvm_warp_shuffle_down(_ALL_LANES, cell[0], distance, _WARP, _WARP)
            lines.append(_set(cell, combine(cell[0], other)))
            distance //= 2
        warp = tirx.floordiv(self.thread, self._int(_WARP))
        lane = tirx.floormod(self.thread, self._int(_WARP))
        lines.append(tirx.IfThenElse(lane < 1, tirx.BufferStore(staged, cell[0], [warp]), None))
        lines.append(_set(cell, staged[0]))
        return lines + [_set(cell, combine(cell[0], staged[at])) for at in range(1, warps)]

    def _write(self) -> tirx.Stmt:
        """Write the numbers of the row."""
        found: Sequence[Any] = (self.highest[0], tirx.log(self.total[0]), self.distances[0])
        stores = [
            tirx.BufferStore(line, value, [self.row])
            for line, value in zip(self.numbers, found, strict=False)
        ]
        return tirx.IfThenElse(self.thread < 1, tirx.SeqStmt(stores), None)

    @property
    def _sums_distances(self) -> bool:
        return len(self.numbers) > 2

    def _line(self, tensor: Any) -> Any:
        """A tensor as one line of elements."""
        size = prod((tirx.Cast("int64", size) for size in tensor.shape), start=self._wide(1))
        return tirx.decl_buffer((size,), str(tensor.dtype), tensor.name, data=tensor.data)

    def _number(self, value: int) -> Any:
        return tirx.const(value, self.dtype)

    def _wide(self, value: int) -> Any:
        return tirx.IntImm("int64", value)

    def _int(self, value: Any) -> Any:
        if isinstance(value, int):
            return tirx.IntImm(self.index, value)
        return tirx.Cast(self.index, value)


def _set(cell: Any, value: Any) -> tirx.Stmt:
    return tirx.BufferStore(cell, value, [0])
