"""Reduces updates in the order of their destinations, given where each destination's begin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands

from . import loops
from .fills import fill_value
from .prefetch import ROWS_AHEAD
from .read_ahead import ReadAhead, RowParts, axes_of_rows
from .reduction import HEAD, MOST_CHUNK, TAIL, Part, Reduction


class Rows(Reduction):
    """The reduction of items, given the offset of each destination.

    Rows without updates are written too, if the problem begins with a number.
    """

    @property
    def workspace_bytes(self) -> Any:
        """Bytes of the workspace: two parts for each chunk, and the destination of the second."""
        if self.problem.reduces.is_store:
            return 0
        return self.parts_bytes + self.chunks * 8

    def emit(
        self,
        operands: Operands,
        offsets: Any,
        item_at: Callable[[Any], Any],
        offset: Any,
        carried: RowParts | None = None,
    ) -> None:
        """Emit the reduction into ``out``.

        It must hold the data already, unless the problem begins with a number.

        Parameters
        ----------
        offsets : indexable
            They ascend, and are not beyond the items: one for each destination, and the end of the
            last one's items.
        item_at : callable
            The item at a position of the order.
        offset : int or expression
            Where the workspace begins, in bytes.
        carried : RowParts, optional
            What is known of each row, in the order.
        """
        self._carried = carried
        self._offsets, self._item_at = offsets, item_at
        self.begin(operands)
        if self.problem.reduces.is_store:
            # What is chosen by the number of items, although rows are written.
            loops.for_each_chunk(self.key_limit, self.chunk, self.work, self._write_last)
            return
        self.view_parts(offset)
        offset = offset + self.parts_bytes
        # The destination whose items begin in a chunk and go on behind it, or -1.
        self._reach = loops.workspace_view(operands, offset, self.chunks, "int64")
        self.each_chunk(self._walk)
        self.join_parts(self._join)

    def _offset(self, key: Any) -> Any:
        return T.bind(loops.int64(self._offsets[key]))

    def _write_last(self, start: Any, length: Any) -> None:
        """Write the last update of each destination."""
        with loops.serial(length) as i:
            key = T.bind(start + i)
            begin, end = self._offset(key), self._offset(key + 1)
            with T.If(begin < end):
                with T.Then():
                    self.store(T.bind(self._item_at(end - 1)), key)
                if self.problem.fill:
                    with T.Else():
                        self._fill_row(key)

    def _fill_row(self, key: Any) -> None:
        with loops.serial(self.batches) as b:
            out = T.bind(loops.key_position(self.operands, key, b, loops.int64(0)))
            with loops.serial(self.width) as s:
                T.buffer_store(self.operands.out, fill_value(self.problem), [out + s])

    def _walk(self, part: Part, start: Any, end: Any) -> None:
        """Reduce the items of a chunk, one destination after the other.

        At most two of them have items in other chunks as well: the first and the last.
        """
        with T.If(part.reports):
            with T.Then():
                T.buffer_store(self._reach, loops.int64(-1), [part.chunk])
        # A cell, because TVM takes two variables bound to one for equal, whatever lies between.
        place = loops.small_buffer(1, "int64")
        total = loops.small_buffer(part.columns.room, self.dtype)
        self._read_ahead(part, start, end)
        self._last = T.bind(end - 1)
        T.buffer_store(place, self._first(start), [0])
        is_last = T.bind(part.chunk == loops.int64(self.chunks) - 1)

        def offset(more: int = 0) -> Any:
            # Behind the last destination stands the end of its items.
            return loops.int64(self._offsets[tirx.min(place[0] + more, self.key_limit)])

        with loops.serial(2):
            crosses = tirx.any(offset() < start, offset(1) > end)
            with T.If(tirx.all(place[0] < self.key_limit, offset() < end, crosses)):
                with T.Then():
                    key, own = T.bind(place[0]), (T.bind(offset()), T.bind(offset(1)))
                    self._reduce_part(total, part, key, own, (start, end))
                    T.buffer_store(place, key + 1, [0])
            here = tirx.any(is_last, offset() < end)
            with T.While(tirx.all(place[0] < self.key_limit, offset(1) <= end, here)):
                key = T.bind(place[0])
                self._reduce(total, part, key, T.bind(offset()), T.bind(offset(1)))
                T.buffer_store(place, key + 1, [0])

    def _read_ahead(self, part: Part, start: Any, end: Any) -> None:
        """Read what the updates of a chunk need to know of each row, if rows take long.

        Of updates that stand in the order it is read side by side anyway.
        """
        self._ahead: tuple[RowParts, Any] | None = None
        if self._carried is not None:
            self._ahead = self._carried, loops.int64(0)
            return
        updates = self.operands.updates
        axes = axes_of_rows(self.problem, updates, self.width)
        if axes is None or not self.takes_long or self.problem.in_order:
            return
        most = self.chunk if isinstance(self.chunk, int) else MOST_CHUNK
        ahead = ReadAhead(updates, axes, most)

        def update_at(i: Any) -> Any:
            item = T.bind(self._item_at(T.bind(start + i)))
            return self.update_position(item, part.batch, loops.int64(0))[0]

        ahead.read_all(end - start, update_at)
        self._ahead = ahead, start

    def _first(self, start: Any) -> Any:
        """The last destination that begins before a position, or else the first one."""
        low, high = (loops.small_buffer(1, "int64") for _ in range(2))
        T.buffer_store(low, loops.int64(0), [0])
        T.buffer_store(high, loops.int64(self.key_limit), [0])
        with T.While(low[0] < high[0]):
            middle = T.bind(tirx.shift_right(low[0] + high[0], loops.int64(1)))
            with T.If(loops.int64(self._offsets[middle]) < start):
                with T.Then():
                    T.buffer_store(low, middle + 1, [0])
                with T.Else():
                    T.buffer_store(high, middle, [0])
        return tirx.max(low[0] - 1, loops.int64(0))

    def _reduce_part(
        self, total: Any, part: Part, key: Any, own: tuple[Any, Any], chunk: tuple[Any, Any]
    ) -> None:
        """Reduce those of a destination's items that lie in a chunk, where others do not."""
        (begin, stop), (start, end) = own, chunk
        low, high = T.bind(tirx.max(begin, start)), T.bind(tirx.min(stop, end))
        begins = T.bind(begin >= start)
        out = T.bind(loops.key_position(self.operands, key, part.batch, part.first))
        with T.If(low < high):
            with T.Then():
                self.start(total, part.columns, out, begins)
                self._add_all(total, part, low, high)
                self._leave(total, part, key, begins)

    def _reduce(self, total: Any, part: Part, key: Any, begin: Any, stop: Any) -> None:
        """Reduce all items of a destination."""
        problem, columns = self.problem, part.columns
        out = T.bind(loops.key_position(self.operands, key, part.batch, part.first))

        def reduce() -> None:
            self.start(total, columns, out)
            self._add_all(total, part, begin, stop)
            self.finish_row(out, total, columns, stop - begin)

        if problem.fill and problem.include_self:
            # Without items the number is what is left.
            reduce()
            return
        with T.If(begin < stop):
            with T.Then():
                reduce()
            if problem.fill:
                with T.Else():
                    store, fill = self.operands.out, fill_value(problem)
                    columns.each(lambda s: T.buffer_store(store, fill, [out + s]))

    def _add_all(self, total: Any, part: Part, low: Any, high: Any) -> None:
        """Add the items in some positions of the order."""
        with loops.serial(high - low) as i:
            at = T.bind(low + i)
            later = T.bind(tirx.min(at + ROWS_AHEAD, self._last))
            self.ask_for(part, *self._item(later))
            self.add(total, part, *self._item(at))

    def _item(self, at: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
        """The item at a position of the order, and what its elements are."""
        item = T.bind(self._item_at(at))
        if self._ahead is None:
            return item, self.element
        ahead, start = self._ahead
        return item, partial(ahead.element, at - start)

    def _leave(self, total: Any, part: Part, key: Any, begins: Any) -> None:
        with T.If(begins):
            with T.Then():
                self.leave(part, TAIL, total)
                with T.If(part.reports):
                    with T.Then():
                        T.buffer_store(self._reach, key, [part.chunk])
            with T.Else():
                self.leave(part, HEAD, total)

    def _join(self, c: Any) -> None:
        """Join the parts of the destination whose items begin in a chunk and go on behind it."""
        key = T.bind(self._reach[c])
        with T.If(key >= 0):
            with T.Then():
                begin, stop = self._offset(key), self._offset(key + 1)
                last = T.bind(tirx.truncdiv(stop - 1, loops.int64(self.chunk)))
                self.join(c, last, key, stop - begin)
