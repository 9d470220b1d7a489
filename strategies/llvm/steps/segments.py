"""Reduces sorted updates: one segment for each destination, in parallel over chunks of items.

The length of chunks depends on the sizes alone. The task of a chunk reduces all segments inside it.
If a segment crosses chunks, each chunk's task reduces its part, and the parts are joined in order
afterwards.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import element
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div, round_up

from . import combiners, loops, values

_LEAST_CHUNK = 32
_MOST_CHUNK = 2048
_CHUNKS = 64
#: Columns that one task reduces, so that its accumulator fits the first-level cache.
_MOST_COLUMNS = 256
#: The parts of a chunk: the end of a segment that began before, the begin of one that goes on.
_HEAD, _TAIL = 0, 1


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
        self.dtype = values.accumulator_dtype(problem.reduces, problem.data_dtype)
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
                        out, update, step = self._positions(item, key, b, loops.int64(0))
                        with loops.serial(self.width) as c:
                            value = element(self._operands.updates, update, c * step, self.width)
                            T.buffer_store(self._operands.out, value, [out + c])

    def _reduce_chunk(self, task: Any) -> None:
        c = T.bind(task // (self.batches * self.blocks))
        b = T.bind(task // self.blocks % self.batches)
        first = T.bind(task % self.blocks * self.block)
        columns = T.bind(loops.int64(loops.minimum(self.width - first, self.block)))
        if isinstance(self.width, int) and self.width == self.block:
            columns = loops.int64(self.width)
        start = T.bind(c * self.chunk)
        end = T.bind(loops.int64(loops.minimum(self.items, start + self.chunk)))
        reports = tirx.all(b == 0, first == 0)
        size = self.block if isinstance(self.block, int) else _MOST_COLUMNS
        total = T.alloc_buffer((size,), self.dtype, scope="local")
        began = T.alloc_buffer((1,), "int64", scope="local")
        T.buffer_store(began, start, [0])
        with T.If(reports):
            with T.Then():
                T.buffer_store(self._reach, loops.int64(-1), [c * 2])
                T.buffer_store(self._reach, loops.int64(-1), [c * 2 + 1])
        with loops.serial(end - start) as i:
            at = T.bind(start + i)
            key = T.bind(loops.int64(self._keys[at]))
            with T.If(key < self.key_limit):
                with T.Then():
                    item = self._item(at)
                    out, update, step = self._positions(item, key, b, first)
                    with T.If(tirx.any(i == 0, self._begins(at, key))):
                        with T.Then():
                            T.buffer_store(began, at, [0])
                            self._begin(total, columns, out, self._begins(at, key))
                    with loops.serial(columns) as s:
                        value = self._wide(
                            element(self._operands.updates, update, s * step, self.width)
                        )
                        T.buffer_store(total, self._combine(total[s], value), [s])
                    ends = T.bind(self._ends(at, key))
                    with T.If(tirx.any(at + 1 == end, ends)):
                        with T.Then():
                            reached_in = T.bind(
                                tirx.all(began[0] == start, tirx.Not(self._begins(start, key)))
                            )
                            with T.If(reached_in):
                                with T.Then():
                                    self._leave(c, _HEAD, b, first, columns, total)
                                    with T.If(tirx.all(reports, ends)):
                                        with T.Then():
                                            T.buffer_store(self._reach, at + 1, [c * 2 + 1])
                                with T.Else():
                                    with T.If(ends):
                                        with T.Then():
                                            count = at + 1 - began[0]
                                            with loops.serial(columns) as s:
                                                self._finish(out + s, total[s], count)
                                        with T.Else():
                                            self._leave(c, _TAIL, b, first, columns, total)
                                            with T.If(reports):
                                                with T.Then():
                                                    T.buffer_store(self._reach, began[0], [c * 2])

    def _begin(self, total: Any, columns: Any, out: Any, is_first: Any) -> None:
        """Initialise a chunk's part of a segment. Only the first part may include the data."""
        start = values.start_value(self.problem.reduces, self.dtype)
        with loops.serial(columns) as s:
            value: Any = start
            if self.problem.include_self:
                value = tirx.if_then_else(is_first, self._wide(self._operands.out[out + s]), start)
            T.buffer_store(total, value, [s])

    def _leave(self, c: Any, which: int, b: Any, first: Any, columns: Any, total: Any) -> None:
        with loops.serial(columns) as s:
            T.buffer_store(self._parts, total[s], [self._part(c, which, b) + first + s])

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
                            T.buffer_store(total, self._combine(total[0], part), [0])
                        self._finish(loops.key_position(self._operands, key, b, s), total[0], count)

    def _finish(self, at: Any, total: Any, count: Any) -> None:
        """Write a reduced segment."""
        if self.problem.reduces.needs_count:
            count = count + 1 if self.problem.include_self else count
            total = values.mean(self.dtype, total, count)
        problem, out = self.problem, self._operands.out
        old = out[at] if problem.include_self else None
        T.buffer_store(out, values.stored(problem.reduces, problem.data_dtype, total, old), [at])

    def _combine(self, total: Any, value: Any) -> Any:
        return combiners.combine(self.problem.reduces, self.dtype, total, value)

    def _wide(self, value: Any) -> Any:
        return values.convert(value, self.dtype)

    def _begins(self, at: Any, key: Any) -> Any:
        """Whether the sorted item at a position is the first of its segment."""
        before = self._keys[tirx.max(at - 1, loops.int64(0))]
        return tirx.any(at == 0, loops.int64(before) != key)

    def _ends(self, at: Any, key: Any) -> Any:
        """Whether the sorted item at a position is the last of its segment."""
        last = loops.int64(self.items) - 1
        return tirx.any(at == last, loops.int64(self._keys[tirx.min(at + 1, last)]) != key)

    def _positions(self, item: Any, key: Any, b: Any, s: Any) -> tuple[Any, Any, int]:
        """Positions of an item's first element in ``out`` and updates, and the updates' stride."""
        problem, sizes = self.problem, self.sizes
        out = T.bind(loops.key_position(self._operands, key, b, s))
        if problem.update_batch and problem.update_count and problem.update_slice:
            update = item if problem.index_slice else item * sizes.slice + s
            if not problem.index_batch:
                update = update + b * (sizes.count * sizes.slice)
        else:
            item_b, k, item_s = loops.item_coordinates(self._operands, item)
            b = item_b if problem.index_batch else b
            s = item_s if problem.index_slice else s
            update = loops.update_position(self._operands, b, k, s)
        return out, T.bind(update), int(problem.update_slice)
