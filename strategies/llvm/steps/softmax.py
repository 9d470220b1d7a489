"""Adds the updates of each destination, weighted by the softmax of their logits.

One pass over a destination's updates, some at a time, keeps the greatest logit so far, and sums
relative to it (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
arXiv 1805.02867, 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.weighted_rows import WeightedRows
from tvm_scatter.problem.sizes import ceil_div

from . import loops

#: Destinations of one task.
_TASK = 64
#: Elements of a row that are added at a time, so that their sums stay in the first-level cache.
_MOST_COLUMNS = 1024
#: Updates whose logits are computed before they are added: then several are on their way.
_UPDATES = 32
#: The most elements of a vector.
_LANES = 16


class SoftmaxRows:
    """The rows of a problem. A row has ``heads`` logits, and ``columns`` elements of each."""

    def __init__(self, operands: Operands) -> None:
        self._operands = operands
        self._out = operands.out
        self._dtype = operands.problem.data_dtype
        self._line = operands.sizes.slice
        self._rows = WeightedRows(operands.updates, operands.sizes.count)
        columns, heads = self._rows.columns, self._rows.heads
        known = isinstance(self._line, int) and isinstance(columns, int)
        #: Whether a block is a whole row, or else a part of one head.
        self._is_whole = known and self._line <= _MOST_COLUMNS
        self._block_heads = heads if self._is_whole else 1
        self._block_columns = columns if self._is_whole else _MOST_COLUMNS
        self._width = loops.settle(self._line)
        self._columns = loops.settle(columns)
        self._heads = loops.settle(heads)

    def emit(self) -> None:
        """Emit the sums into ``out``, which must hold the data already."""
        sizes = self._operands.sizes
        _, offsets = self._operands.ordering
        column_blocks = ceil_div(self._columns, self._block_columns)

        def rows(start: Any, length: Any) -> None:
            with loops.serial(length) as i:
                row = T.bind(start + i)
                begin, end = (T.bind(loops.int64(offsets[row + more])) for more in (0, 1))
                with T.If(begin < end):
                    with T.Then():
                        with loops.serial(ceil_div(self._heads, self._block_heads)) as head:
                            with loops.serial(column_blocks) as block:
                                self._add(row, begin, end, head, block)

        work = sizes.items * sizes.slice
        known = work if isinstance(work, int) else None
        loops.for_each_chunk(loops.settle(sizes.destinations), _TASK, known, rows)

    def _add(self, row: Any, begin: Any, end: Any, block_head: Any, block: Any) -> None:
        """Add the updates [begin, end) of the order to a block of a row."""
        heads, room, dtype = self._block_heads, self._block_columns, self._dtype
        first_head = loops.int64(0) if self._is_whole else block_head
        first = T.bind(block * room)
        rest = loops.int64(loops.minimum(self._columns - first, room))
        columns = loops.int64(room) if self._is_whole else T.bind(rest)
        greatest, before, total = (T.alloc_buffer((heads,), dtype, scope="local") for _ in range(3))
        shares = T.alloc_buffer((_UPDATES * heads,), dtype, scope="local")
        sums = T.alloc_buffer((heads * room,), dtype, scope="local")
        with self._each_head() as h:
            T.buffer_store(greatest, tirx.const(float("-inf"), dtype), [h])
            T.buffer_store(total, tirx.const(0, dtype), [h])
            with loops.serial(columns) as c:
                T.buffer_store(sums, tirx.const(0, dtype), [h * room + c])
        with loops.serial(ceil_div(end - begin, _UPDATES)) as tile:
            start = T.bind(begin + tile * _UPDATES)
            count = T.bind(loops.int64(loops.minimum(end - start, _UPDATES)))
            with self._each_head() as h:
                T.buffer_store(before, greatest[h], [h])
            with loops.serial(count) as i:
                item = self._item(start + i)
                with self._each_head() as h:
                    logit = T.bind(self._logit(item, h, first_head))
                    T.buffer_store(shares, logit, [i * heads + h])
                    more = tirx.Select(logit > greatest[h], logit, greatest[h])
                    T.buffer_store(greatest, more, [h])
            with self._each_head() as h:
                # What there was, relative to the logit that is the greatest now.
                kept = T.bind(self._raised(before[h], greatest[h]))
                T.buffer_store(before, kept, [h])
                T.buffer_store(total, total[h] * before[h], [h])
                with loops.serial(columns) as c:
                    T.buffer_store(sums, sums[h * room + c] * before[h], [h * room + c])
            with loops.serial(count) as i:
                with self._each_head() as h:
                    at = i * heads + h
                    T.buffer_store(shares, self._raised(shares[at], greatest[h]), [at])
                    T.buffer_store(total, total[h] + shares[at], [h])
            with loops.serial(count) as i:
                item = self._item(start + i)
                with self._each_head() as h:
                    share = T.bind(shares[i * heads + h])
                    with self._columns_of(columns) as c:
                        value = self._element(item, h, first_head, c, first)
                        at = h * room + c
                        T.buffer_store(sums, sums[at] + value * share, [at])
        with self._each_head() as h:
            # What is raised by an infinite logit is no number, and so is every share.
            finite = tirx.abs(greatest[h]) < tirx.const(float("inf"), dtype)
            nan = tirx.const(float("nan"), dtype)
            T.buffer_store(total, tirx.Select(finite, total[h], nan), [h])
            to = T.bind(row * self._width + (first_head + h) * self._columns + first)
            with loops.serial(columns) as c:
                T.buffer_store(self._out, sums[h * room + c] / total[h], [to + c])

    def _item(self, at: Any) -> Any:
        """The number of an update in the order."""
        return T.bind(loops.int64(self._operands.ordering[0][at]))

    def _raised(self, logit: Any, greatest: Any) -> Any:
        """The exponential of what a logit is less than the greatest."""
        # Equal infinities differ by nothing.
        zero = tirx.const(0, self._dtype)
        return tirx.exp(tirx.Select(logit == greatest, zero, logit - greatest))

    @contextmanager
    def _each_head(self) -> Iterator[Any]:
        """A loop over the heads of a block."""
        if self._block_heads == 1:
            yield loops.int64(0)
            return
        with loops.serial(self._block_heads) as h:
            yield h

    @contextmanager
    def _columns_of(self, columns: Any) -> Iterator[Any]:
        """A loop over the columns of a block.

        By vectors, because a compiler that finds several heads would make vectors across them.
        """
        lanes = _LANES
        while self._block_columns % lanes:
            lanes //= 2
        if not self._is_whole or lanes == 1:
            with loops.serial(columns) as c:
                yield c
            return
        with loops.serial(self._block_columns // lanes) as vector:
            with T.vectorized(lanes) as lane:
                yield vector * lanes + lane

    def _logit(self, item: Any, h: Any, first_head: Any) -> Any:
        return self._rows.logit(item, h if self._is_whole else first_head)

    def _element(self, item: Any, h: Any, first_head: Any, c: Any, first: Any) -> Any:
        head, column = (h, c) if self._is_whole else (first_head, first + c)
        return self._rows.value(item, head, column)
