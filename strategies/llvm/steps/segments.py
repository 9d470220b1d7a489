"""Reduces sorted updates: one segment for each destination, in parallel over chunks of items.

The length of chunks depends on the sizes alone. The task of a chunk reduces all segments inside it.
If a segment crosses chunks, each chunk's task reduces its part, and the parts are joined in order
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import element, element_expression
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div, round_up

from . import loops
from .accumulator import accumulator
from .columns import Columns

_LEAST_CHUNK = 32
_MOST_CHUNK = 2048
_CHUNKS = 64
#: Columns that one task reduces, so that its accumulator fits the first-level cache.
_MOST_COLUMNS = 256
#: The parts of a chunk: the end of a segment that began before, the begin of one that goes on.
_HEAD, _TAIL = 0, 1


@dataclass(frozen=True)
class _Part:
    """The part of the work of a task.

    Attributes
    ----------
    chunk, batch, first : expression
        The chunk of items, the batch, and the first column.
    columns : Columns
        The columns from there on.
    reports : expression
        Whether the task tells where segments cross the bounds of the chunk, for all that share it.
    """

    chunk: Any
    batch: Any
    first: Any
    columns: Columns
    reports: Any


class Segments:
    """The segmented reduction of a problem."""

    def __init__(self, problem: ScatterProblem, sizes: Sizes) -> None:
        self.problem = problem
        self.sizes = sizes
        self.items = loops.item_count(problem, sizes)
        self.key_limit = loops.key_count(problem, sizes)
        self.batches = 1 if problem.index_batch else sizes.batch
        self.width = 1 if problem.index_slice else sizes.slice
        self.block = at_most(self.width, _MOST_COLUMNS)
        self.blocks = ceil_div(self.width, _MOST_COLUMNS)
        self.chunk = at_most(at_least(ceil_div(self.items, _CHUNKS), _LEAST_CHUNK), _MOST_CHUNK)
        self.chunks = ceil_div(self.items, self.chunk)
        self.kept = accumulator(problem.reduces, problem.data_dtype)
        self.dtype = self.kept.dtype
        work = sizes.batch * sizes.count * sizes.slice
        self.work = work if isinstance(work, int) else None

    @property
    def workspace_bytes(self) -> Any:
        """Bytes of the workspace: two parts for each chunk, and bounds of segments that cross
        chunks.
        """
        if self.problem.reduces.is_store:
            return 0
        return self._parts_bytes + self.chunks * 16

    @property
    def _part_size(self) -> Any:
        return self.batches * self.width

    @property
    def _parts_bytes(self) -> Any:
        return round_up(self.chunks * self._part_size * (2 * item_bytes(self.dtype)), 64)

    def emit(self, operands: Operands, keys: Any, items: Any, offset: Any) -> None:
        """Emit the reduction into ``out``, which must hold the data already."""
        self._operands, self._keys, self._items = operands, keys, items
        for name in (
            "items",
            "key_limit",
            "batches",
            "width",
            "block",
            "blocks",
            "chunk",
            "chunks",
        ):
            setattr(self, name, loops.settle(getattr(self, name)))
        if self.problem.reduces.is_store:
            loops.for_each_chunk(self.items, self.chunk, self.work, self._write_last)
            return
        view = loops.workspace_view
        parts = self.chunks * self._part_size * 2
        self._parts = view(operands, offset, parts, self.dtype)
        offset = offset + self._parts_bytes
        # Entry 2c: the begin of the segment that continues behind chunk c, or -1. Entry 2c + 1: the
        # end of the segment that began before chunk c, or -1 if it does not end in it.
        self._reach = view(operands, offset, self.chunks * 2, "int64")
        loops.for_each(self.chunks * self.batches * self.blocks, self.work, self._reduce_chunk)
        loops.for_each(self.chunks, self.work, self._join)

    def _item(self, at: Any) -> Any:
        """The item at a position. Where the caller gives the order, it may be none of the items."""
        item = loops.int64(self._items[at])
        if self.problem.ordered:
            item = tirx.max(tirx.min(item, loops.int64(self.items) - 1), loops.int64(0))
        return T.bind(item)

    def _write_last(self, start: Any, length: Any) -> None:
        """Write the last update of each segment."""
        with loops.serial(length) as i:
            at = T.bind(start + i)
            key = T.bind(loops.int64(self._keys[at]))
            with T.If(tirx.all(key < self.key_limit, self._ends(at, key))):
                with T.Then():
                    item = self._item(at)
                    with loops.serial(self.batches) as b:
                        out = T.bind(loops.key_position(self._operands, key, b, loops.int64(0)))
                        update, step = self._update_position(item, b, loops.int64(0))
                        with loops.serial(self.width) as c:
                            value = element(self._operands.updates, update, c * step, self.width)
                            T.buffer_store(self._operands.out, value, [out + c])

    def _reduce_chunk(self, task: Any) -> None:
        c = T.bind(task // (self.batches * self.blocks))
        b = T.bind(task // self.blocks % self.batches)
        first = T.bind(task % self.blocks * self.block)
        start = T.bind(c * self.chunk)
        end = T.bind(loops.int64(loops.minimum(self.items, start + self.chunk)))
        reports = T.bind(tirx.all(b == 0, first == 0))
        with T.If(reports):
            with T.Then():
                T.buffer_store(self._reach, loops.int64(-1), [c * 2])
                T.buffer_store(self._reach, loops.int64(-1), [c * 2 + 1])
        self._each_width(
            first, lambda columns: self._walk(_Part(c, b, first, columns, reports), start, end)
        )

    def _each_width(self, first: Any, body: Callable[[Columns], None]) -> None:
        """Emit ``body`` for the columns of a block; the last block may have fewer."""
        width, block = self.width, self.block
        # TVM has no vectors of booleans, and float16 may be converted by several statements.
        makes_none = self.problem.data_dtype in ("bool", "float16")
        vectors = None if makes_none else self.dtype
        if not isinstance(width, int):
            rest = T.bind(loops.int64(loops.minimum(width - first, block)))
            body(Columns(rest, _MOST_COLUMNS))
        elif width % block == 0:
            body(Columns(block, block, vectors))
        else:
            with T.If(first + block <= width):
                with T.Then():
                    body(Columns(block, block, vectors))
                with T.Else():
                    body(Columns(width % block, block, vectors))

    def _walk(self, part: _Part, start: Any, end: Any) -> None:
        """Reduce the segments of a chunk, one after the other."""
        # Cells, because TVM takes two variables bound to one cell for equal, whatever lies between.
        at, began = (T.alloc_buffer((1,), "int64", scope="local") for _ in range(2))
        total = T.alloc_buffer((part.columns.room,), self.dtype, scope="local")
        T.buffer_store(at, start, [0])
        with T.While(at[0] < end):
            T.buffer_store(began, at[0], [0])
            key = T.bind(loops.int64(self._keys[at[0]]))
            with T.If(key < self.key_limit):
                with T.Then():
                    begins = T.bind(tirx.any(began[0] > start, self._begins(start, key)))
                    out = T.bind(loops.key_position(self._operands, key, part.batch, part.first))
                    self._begin(total, part.columns, out, begins)
                    # Behind the last position of the chunk is no key to look at.
                    here = self._keys[tirx.min(at[0], end - 1)]
                    with T.While(tirx.all(at[0] < end, loops.int64(here) == key)):
                        self._add(total, part, T.bind(at[0]))
                        T.buffer_store(at, at[0] + 1, [0])
                    self._end(total, part, out, key, (began[0], at[0]), begins)
                with T.Else():
                    # Updates without a destination are the last ones.
                    T.buffer_store(at, end, [0])

    def _begin(self, total: Any, columns: Columns, out: Any, begins: Any) -> None:
        """Initialise a chunk's part of a segment. Only the first part may include the data."""
        start = self.kept.start

        def store(value: Callable[[Any], Any]) -> None:
            columns.each(lambda s: T.buffer_store(total, value(s), [s]))

        if not self.problem.include_self:
            store(lambda _: start)
            return
        with T.If(begins):
            with T.Then():
                store(lambda s: self.kept.take(self._operands.out[out + s]))
            with T.Else():
                store(lambda _: start)

    def _add(self, total: Any, part: _Part, at: Any) -> None:
        """Add the update at a position of the order to a segment."""
        update, step = self._update_position(self._item(at), part.batch, part.first)
        one = T.alloc_buffer((part.columns.room,), self.problem.data_dtype, scope="local")

        def add(s: Any) -> None:
            # TVM loses a variable bound to what it makes no vectors of. A buffer it does not lose.
            value = element_expression(self._operands.updates, update, s * step, self.width)
            T.buffer_store(one, value, [s])
            T.buffer_store(total, self.kept.combine(total[s], self.kept.take(one[s])), [s])

        part.columns.each(add)

    def _end(
        self, total: Any, part: _Part, out: Any, key: Any, bounds: tuple[Any, Any], begins: Any
    ) -> None:
        """Write a segment, or a part of one that goes on in another chunk."""
        began, end = bounds
        ends = T.bind(self._ends(end - 1, key))
        with T.If(tirx.all(begins, ends)):
            with T.Then():
                part.columns.each(lambda s: self._finish(out + s, total[s], end - began))
            with T.Else():
                with T.If(begins):
                    with T.Then():
                        self._leave(part, _TAIL, total)
                    with T.Else():
                        self._leave(part, _HEAD, total)
                with T.If(part.reports):
                    with T.Then():
                        with T.If(begins):
                            with T.Then():
                                T.buffer_store(self._reach, began, [part.chunk * 2])
                            with T.Else():
                                with T.If(ends):
                                    with T.Then():
                                        T.buffer_store(self._reach, end, [part.chunk * 2 + 1])

    def _leave(self, part: _Part, which: int, total: Any) -> None:
        begin = T.bind(self._part(part.chunk, which, part.batch) + part.first)
        part.columns.each(lambda s: T.buffer_store(self._parts, total[s], [begin + s]))

    def _part(self, c: Any, which: int, b: Any) -> Any:
        return ((c * 2 + which) * self.batches + b) * self.width

    def _join(self, c: Any) -> None:
        """Join the parts of the segment that begins in a chunk and continues behind it."""
        began = T.bind(self._reach[c * 2])
        with T.If(began >= 0):
            with T.Then():
                last = T.alloc_buffer((1,), "int64", scope="local")
                T.buffer_store(last, c + 1, [0])
                with T.While(self._reach[last[0] * 2 + 1] < 0):
                    T.buffer_store(last, last[0] + 1, [0])
                count = T.bind(self._reach[last[0] * 2 + 1] - began)
                key = T.bind(loops.int64(self._keys[began]))
                total = T.alloc_buffer((1,), self.dtype, scope="local")
                with loops.serial(self.batches) as b:
                    with loops.serial(self.width) as s:
                        T.buffer_store(total, self._parts[self._part(c, _TAIL, b) + s], [0])
                        with loops.serial(last[0] - c) as i:
                            part = self._parts[self._part(c + 1 + i, _HEAD, b) + s]
                            T.buffer_store(total, self.kept.combine(total[0], part), [0])
                        self._finish(loops.key_position(self._operands, key, b, s), total[0], count)

    def _finish(self, at: Any, total: Any, count: Any) -> None:
        """Write a reduced segment."""
        if self.problem.include_self:
            count = count + 1
        out = self._operands.out
        old = out[at] if self.problem.include_self else None
        T.buffer_store(out, self.kept.give(total, count, old), [at])

    def _begins(self, at: Any, key: Any) -> Any:
        """Whether the sorted item at a position is the first of its segment."""
        before = self._keys[tirx.max(at - 1, loops.int64(0))]
        return tirx.any(at == 0, loops.int64(before) != key)

    def _ends(self, at: Any, key: Any) -> Any:
        """Whether the sorted item at a position is the last of its segment."""
        last = loops.int64(self.items) - 1
        return tirx.any(at == last, loops.int64(self._keys[tirx.min(at + 1, last)]) != key)

    def _update_position(self, item: Any, b: Any, s: Any) -> tuple[Any, int]:
        """The position of an item's first element in the updates, and their stride."""
        problem, sizes = self.problem, self.sizes
        if problem.update_batch and problem.update_count and problem.update_slice:
            update = item if problem.index_slice else item * sizes.slice + s
            if not problem.index_batch:
                update = update + b * (sizes.count * sizes.slice)
        else:
            item_b, k, item_s = loops.item_coordinates(self._operands, item)
            b = item_b if problem.index_batch else b
            s = item_s if problem.index_slice else s
            update = loops.update_position(self._operands, b, k, s)
        return T.bind(update), int(problem.update_slice)
