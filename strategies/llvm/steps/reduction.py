"""What reductions of updates in the order of their destinations have in common.

They cut the order into chunks, whose length depends on the sizes alone. The task of a chunk reduces
all segments inside it. If a segment crosses chunks, each chunk's task reduces its part, and the
parts are joined in order afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import ComputedUpdates, element_expression
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div, round_up

from . import loops, pairs, values
from .accumulator import accumulator
from .columns import Columns
from .fills import fill_value
from .prefetch import ask_for

_LEAST_CHUNK = 32
#: The most items of a chunk.
MOST_CHUNK = 2048
_CHUNKS = 64
#: Columns that one task reduces, so that its accumulator fits the first-level cache.
_MOST_COLUMNS = 256
#: Lines of the cache that a row is asked for by, if reading it is all that takes time. A processor
#: foresees the others, and each request takes the place of a read.
_LINES_OF_SHORT = 2
#: The parts of a chunk: the end of a segment that began before, the begin of one that goes on.
HEAD, TAIL = 0, 1


@dataclass(frozen=True)
class Part:
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


class Reduction:
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
        self.chunk = at_most(at_least(ceil_div(self.items, _CHUNKS), _LEAST_CHUNK), MOST_CHUNK)
        self.chunks = at_least(ceil_div(self.items, self.chunk), 1)
        self.kept = accumulator(problem.reduces, problem.data_dtype)
        self.dtype = self.kept.dtype
        work = sizes.batch * sizes.count * sizes.slice
        self.work = work if isinstance(work, int) else None

    @property
    def takes_long(self) -> bool:
        """Whether an update takes so many instructions that a processor sees few rows ahead."""
        return bool(self.dtype != self.problem.data_dtype)

    @property
    def parts_bytes(self) -> Any:
        """Bytes of the parts of segments that cross chunks: two for each chunk."""
        return round_up(self.chunks * self._part_size * (2 * item_bytes(self.dtype)), 64)

    @property
    def _part_size(self) -> Any:
        return self.batches * self.width

    def begin(self, operands: Operands) -> None:
        """Evaluate the sizes in the function that is emitted."""
        self.operands = operands
        names = ("items", "key_limit", "batches", "width", "block", "blocks", "chunk", "chunks")
        for name in names:
            setattr(self, name, loops.settle(getattr(self, name)))
        self.in_pairs = self._suits_pairs()

    def _suits_pairs(self) -> bool:
        """Whether rows are read and written in words, which hold two columns."""
        problem, updates, width = self.problem, self.operands.updates, self.width
        if not isinstance(updates, ComputedUpdates) or problem.index_slice:
            return False
        sums = problem.data_dtype == "bfloat16" and not problem.reduces.is_extreme
        from_nothing = bool(problem.fill) or not problem.include_self
        if not (sums and from_nothing and problem.update_slice and updates.dtype == self.dtype):
            return False
        if not isinstance(width, int) or width % pairs.COLUMNS:
            return False
        item, column = (tirx.Var(name, "int64") for name in ("item", "column"))
        return pairs.read_in_words(self.element(item * width, column), column)

    def join_parts(self, join: Callable[[Any], None]) -> None:
        """Emit ``join(chunk)`` for each chunk.

        Not where rows have no elements: then :meth:`each_chunk` has no task that could tell which
        segments cross the bounds of chunks.
        """
        loops.for_each(self.chunks * at_most(self.batches * self.blocks, 1), self.work, join)

    def view_parts(self, offset: Any) -> None:
        """Lay out the parts in the workspace, ``offset`` bytes from its start."""
        count = self.chunks * self._part_size * 2
        self._parts = loops.workspace_view(self.operands, offset, count, self.dtype)

    def each_chunk(self, body: Callable[[Part, Any, Any], None]) -> None:
        """Emit ``body(part, start, end)`` for each chunk, batch and block of columns."""

        def reduce_chunk(task: Any) -> None:
            c = T.bind(task // (self.batches * self.blocks))
            b = T.bind(task // self.blocks % self.batches)
            first = T.bind(task % self.blocks * self.block)
            start = T.bind(c * self.chunk)
            end = T.bind(loops.int64(loops.minimum(self.items, start + self.chunk)))
            reports = T.bind(tirx.all(b == 0, first == 0))
            self._each_width(
                first, lambda columns: body(Part(c, b, first, columns, reports), start, end)
            )

        loops.for_each(self.chunks * self.batches * self.blocks, self.work, reduce_chunk)

    def _each_width(self, first: Any, body: Callable[[Columns], None]) -> None:
        """Emit ``body`` for the columns of a block; the last block may have fewer."""
        width, block = self.width, self.block
        problem = self.problem
        # TVM has no vectors of booleans, and float16 may be converted by several statements. It
        # cannot store a vector of bfloat16 that is chosen: an extreme or not a number, the data or
        # what is reduced without them.
        chosen = problem.reduces.is_extreme or not problem.include_self
        makes_none = problem.data_dtype in ("bool", "float16") or (
            problem.data_dtype == "bfloat16" and chosen
        )
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

    def start(self, total: Any, columns: Columns, out: Any, begins: Any = None) -> None:
        """Initialise a segment or, if ``begins`` says whether it is the first, a part of one.

        Only the first part may include the data.
        """

        def store(value: Callable[[Any], Any]) -> None:
            columns.each(lambda s: T.buffer_store(total, value(s), [s]))

        if not self.problem.include_self:
            store(lambda _: self.kept.start)
            return
        if begins is None:
            store(lambda s: self.kept.take(self._data(out + s)))
            return
        with T.If(begins):
            with T.Then():
                store(lambda s: self.kept.take(self._data(out + s)))
            with T.Else():
                store(lambda _: self.kept.start)

    def _data(self, at: Any) -> Any:
        """What an element of the output begins with."""
        if self.problem.fill:
            return fill_value(self.problem)
        return self.operands.out[at]

    def add(
        self,
        total: Any,
        part: Part,
        item: Any,
        element: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Add the update of an item to a segment.

        Parameters
        ----------
        element : callable, optional
            The element some columns after a position in the updates, if it is not read there.
        """
        update, step = self.update_position(item, part.batch, part.first)
        read = partial(element or self.element, update)
        problem, updates = self.problem, self.operands.updates
        dtype, rounded = values.read_as(updates, problem.data_dtype)
        one = loops.small_buffer(part.columns.room, dtype)
        # An extreme is rounded at the end: rounding keeps the order.
        at_end = problem.reduces.is_extreme

        def add(s: Any, value: Any) -> None:
            # TVM loses a variable bound to what it makes no vectors of. A buffer it does not lose.
            T.buffer_store(one, value, [s])
            taken = self.kept.take(one[s] if at_end else rounded(one[s]))
            T.buffer_store(total, self.kept.combine(total[s], taken), [s])

        if self.in_pairs:
            pairs.read(part.columns.count, read, add)
        else:
            part.columns.each(lambda s: add(s, read(s * step)))

    def element(self, update: Any, column: Any) -> Any:
        """The element some columns after a position in the updates."""
        return element_expression(self.operands.updates, update, column, self.width)

    def ask_for(
        self, part: Part, item: Any, element: Callable[[Any, Any], Any] | None = None
    ) -> None:
        """Ask for the update of an item that is added soon; ``element`` is that of :meth:`add`."""
        update, step = self.update_position(item, part.batch, part.first)
        lines = None if self.takes_long else _LINES_OF_SHORT
        ask_for(lambda s: (element or self.element)(update, s * step), part.columns.count, lines)

    def leave(self, part: Part, which: int, total: Any) -> None:
        """Keep a part of a segment: :data:`HEAD` or :data:`TAIL`."""
        begin = T.bind(self._part(part.chunk, which, part.batch) + part.first)
        part.columns.each(lambda s: T.buffer_store(self._parts, total[s], [begin + s]))

    def _part(self, c: Any, which: int, b: Any) -> Any:
        return ((c * 2 + which) * self.batches + b) * self.width

    def join(self, c: Any, last: Any, key: Any, count: Any) -> None:
        """Join the parts of a segment that begins in chunk ``c`` and ends in chunk ``last``."""
        total = loops.small_buffer(1, self.dtype)
        with loops.serial(self.batches) as b:
            with loops.serial(self.width) as s:
                slot = pairs.slot(s) if self.in_pairs else s
                T.buffer_store(total, self._parts[self._part(c, TAIL, b) + slot], [0])
                with loops.serial(last - c) as i:
                    part = self._parts[self._part(c + 1 + i, HEAD, b) + slot]
                    T.buffer_store(total, self.kept.combine(total[0], part), [0])
                self.finish(loops.key_position(self.operands, key, b, s), total[0], count)

    def finish_row(self, out: Any, total: Any, columns: Columns, count: Any) -> None:
        """Write the columns of a reduced segment."""
        if not self.in_pairs:
            columns.each(lambda s: self.finish(out + s, total[s], count))
            return
        number, combined = self.kept.number, count + int(self.problem.include_self)
        pairs.write(
            self.operands.out, out, columns.count, lambda slot: number(total[slot], combined)
        )

    def finish(self, at: Any, total: Any, count: Any) -> None:
        """Write an element of a reduced segment."""
        old = None
        if self.problem.include_self:
            count, old = count + 1, self._data(at)
        T.buffer_store(self.operands.out, self.kept.give(total, count, old), [at])

    def update_position(self, item: Any, b: Any, s: Any) -> tuple[Any, int]:
        """The position of an item's first element in the updates, and their stride."""
        problem, sizes = self.problem, self.sizes
        if problem.update_batch and problem.update_count and problem.update_slice:
            update = item if problem.index_slice else item * sizes.slice + s
            if not problem.index_batch:
                update = update + b * (sizes.count * sizes.slice)
        else:
            item_b, k, item_s = loops.item_coordinates(self.operands, item)
            b = item_b if problem.index_batch else b
            s = item_s if problem.index_slice else s
            update = loops.update_position(self.operands, b, k, s)
        return T.bind(update), int(problem.update_slice)

    def store(self, item: Any, key: Any) -> None:
        """Write an update alone, all of its row."""
        with loops.serial(self.batches) as b:
            out = T.bind(loops.key_position(self.operands, key, b, loops.int64(0)))
            update, step = self.update_position(item, b, loops.int64(0))
            with loops.serial(self.width) as c:
                value = element_expression(self.operands.updates, update, c * step, self.width)
                value = values.convert(value, self.problem.data_dtype)
                T.buffer_store(self.operands.out, value, [out + c])
