"""Reduces sorted updates: one segment for each destination, where the keys change."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands

from . import loops
from .prefetch import ROWS_AHEAD
from .reduction import HEAD, TAIL, Part, Reduction


class Segments(Reduction):
    """The reduction of sorted items, given the key of each."""

    @property
    def workspace_bytes(self) -> Any:
        """Bytes of the workspace: two parts for each chunk, and bounds of segments that cross
        chunks.
        """
        if self.problem.reduces.is_store:
            return 0
        return self.parts_bytes + self.chunks * 16

    def emit(self, operands: Operands, keys: Any, items: Any, offset: Any) -> None:
        """Emit the reduction into ``out``, which must hold the data already."""
        self._keys, self._items = keys, items
        self.begin(operands)
        if self.problem.reduces.is_store:
            loops.for_each_chunk(self.items, self.chunk, self.work, self._write_last)
            return
        self.view_parts(offset)
        offset = offset + self.parts_bytes
        # Entry 2c: the begin of the segment that continues behind chunk c, or -1. Entry 2c + 1: the
        # end of the segment that began before chunk c, or -1 if it does not end in it.
        self._reach = loops.workspace_view(operands, offset, self.chunks * 2, "int64")
        self.each_chunk(self._walk)
        self.join_parts(self._join)

    def _item(self, at: Any) -> Any:
        return T.bind(loops.int64(self._items[at]))

    def _write_last(self, start: Any, length: Any) -> None:
        """Write the last update of each segment."""
        with loops.serial(length) as i:
            at = T.bind(start + i)
            key = T.bind(loops.int64(self._keys[at]))
            with T.If(tirx.all(key < self.key_limit, self._ends(at, key))):
                with T.Then():
                    self.store(self._item(at), key)

    def _walk(self, part: Part, start: Any, end: Any) -> None:
        """Reduce the segments of a chunk, one after the other."""
        with T.If(part.reports):
            with T.Then():
                for which in (HEAD, TAIL):
                    T.buffer_store(self._reach, loops.int64(-1), [part.chunk * 2 + which])
        # Cells, because TVM takes two variables bound to one cell for equal, whatever lies between.
        at, began = (loops.small_buffer(1, "int64") for _ in range(2))
        total = loops.small_buffer(part.columns.room, self.dtype)
        T.buffer_store(at, start, [0])
        with T.While(at[0] < end):
            T.buffer_store(began, at[0], [0])
            key = T.bind(loops.int64(self._keys[at[0]]))
            with T.If(key < self.key_limit):
                with T.Then():
                    begins = T.bind(tirx.any(began[0] > start, self._begins(start, key)))
                    out = T.bind(loops.key_position(self.operands, key, part.batch, part.first))
                    self.start(total, part.columns, out, begins)
                    # Behind the last position of the chunk is no key to look at.
                    here = self._keys[tirx.min(at[0], end - 1)]
                    with T.While(tirx.all(at[0] < end, loops.int64(here) == key)):
                        later = T.bind(tirx.min(at[0] + ROWS_AHEAD, end - 1))
                        self.ask_for(part, self._item(later))
                        self.add(total, part, self._item(T.bind(at[0])))
                        T.buffer_store(at, at[0] + 1, [0])
                    self._end(total, part, out, key, (began[0], at[0]), begins)
                with T.Else():
                    # Updates without a destination are the last ones.
                    T.buffer_store(at, end, [0])

    def _end(
        self, total: Any, part: Part, out: Any, key: Any, bounds: tuple[Any, Any], begins: Any
    ) -> None:
        """Write a segment, or a part of one that goes on in another chunk."""
        began, end = bounds
        ends = T.bind(self._ends(end - 1, key))
        with T.If(tirx.all(begins, ends)):
            with T.Then():
                self.finish_row(out, total, part.columns, end - began)
            with T.Else():
                with T.If(begins):
                    with T.Then():
                        self.leave(part, TAIL, total)
                    with T.Else():
                        self.leave(part, HEAD, total)
                with T.If(part.reports):
                    with T.Then():
                        with T.If(begins):
                            with T.Then():
                                T.buffer_store(self._reach, began, [part.chunk * 2])
                            with T.Else():
                                with T.If(ends):
                                    with T.Then():
                                        T.buffer_store(self._reach, end, [part.chunk * 2 + 1])

    def _join(self, c: Any) -> None:
        """Join the parts of the segment that begins in a chunk and continues behind it."""
        began = T.bind(self._reach[c * 2])
        with T.If(began >= 0):
            with T.Then():
                last = loops.small_buffer(1, "int64")
                T.buffer_store(last, c + 1, [0])
                with T.While(self._reach[last[0] * 2 + 1] < 0):
                    T.buffer_store(last, last[0] + 1, [0])
                count = T.bind(self._reach[last[0] * 2 + 1] - began)
                self.join(c, last[0], T.bind(loops.int64(self._keys[began])), count)

    def _begins(self, at: Any, key: Any) -> Any:
        """Whether the sorted item at a position is the first of its segment."""
        before = self._keys[tirx.max(at - 1, loops.int64(0))]
        return tirx.any(at == 0, loops.int64(before) != key)

    def _ends(self, at: Any, key: Any) -> Any:
        """Whether the sorted item at a position is the last of its segment."""
        last = loops.int64(self.items) - 1
        return tirx.any(at == last, loops.int64(self._keys[tirx.min(at + 1, last)]) != key)
