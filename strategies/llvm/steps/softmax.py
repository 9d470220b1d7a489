"""Adds the updates of each destination, weighted by the softmax of their logits.

One pass over a destination's updates, some at a time, keeps the greatest logit so far, and sums
relative to it (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
arXiv 1805.02867, 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.owned_updates import read_by_destination
from tvm_scatter.emit.weighted_rows import WeightedRows
from tvm_scatter.problem.sizes import ceil_div

from . import loops
from .prefetch import ROWS_AHEAD, ask_for, ask_for_entries

#: Destinations of one task.
_TASK = 64
#: Elements of a row that are added at a time, so that their sums stay in the first-level cache.
_MOST_COLUMNS = 1024
#: Updates whose logits are computed before they are added: then several are on their way.
_UPDATES = 32
#: The most elements of a vector.
_LANES = 16


@dataclass(frozen=True)
class _Block:
    """A block of a row, and what is kept of it while its updates are added.

    Attributes
    ----------
    row, first_head, first, columns : expression
        The row, its first head, and of each head its first column and how many there are.
    greatest, before, total : buffer
        For each head the greatest logit so far, what it was before the updates at hand, and the sum
        of what the logits are raised to.
    shares : buffer
        For each update at hand and each head the logit, and then its power.
    sums : buffer
        The sums of values, times those powers.
    """

    row: Any
    first_head: Any
    first: Any
    columns: Any
    greatest: Any
    before: Any
    total: Any
    shares: Any
    sums: Any


class SoftmaxRows:
    """The rows of a problem. A row has ``heads`` logits, and ``columns`` elements of each."""

    def __init__(self, operands: Operands) -> None:
        self._operands = operands
        self._out = operands.out
        self._dtype = operands.problem.data_dtype
        self._line = operands.sizes.slice
        self._updates = read_by_destination(operands)
        self._rows = WeightedRows(self._updates, operands.sizes.count)
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
        offsets = self._operands.ordering[-1]
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
        kept = self._block(row, block_head, block)
        with loops.serial(ceil_div(end - begin, _UPDATES)) as tile:
            start = T.bind(begin + tile * _UPDATES)
            count = T.bind(loops.int64(loops.minimum(end - start, _UPDATES)))
            self._take_logits(kept, start, count)
            self._rescale(kept)
            self._raise_logits(kept, start, count)
            self._add_values(kept, start, count)
        self._store(kept)

    def _block(self, row: Any, block_head: Any, block: Any) -> _Block:
        """A block to which nothing is added yet."""
        heads, room, dtype = self._block_heads, self._block_columns, self._dtype
        first_head = loops.int64(0) if self._is_whole else block_head
        first = T.bind(block * room)
        rest = loops.int64(loops.minimum(self._columns - first, room))
        columns = loops.int64(room) if self._is_whole else T.bind(rest)
        greatest, before, total = (loops.small_buffer(heads, dtype) for _ in range(3))
        shares = loops.small_buffer(_UPDATES * heads, dtype)
        sums = loops.small_buffer(heads * room, dtype)
        with self._each_head() as h:
            T.buffer_store(greatest, tirx.const(float("-inf"), dtype), [h])
            T.buffer_store(total, tirx.const(0, dtype), [h])
            with loops.serial(columns) as c:
                T.buffer_store(sums, tirx.const(0, dtype), [h * room + c])
        return _Block(row, first_head, first, columns, greatest, before, total, shares, sums)

    def _take_logits(self, kept: _Block, start: Any, count: Any) -> None:
        """Read the logits of the next updates, and find the greatest so far."""
        greatest, last = kept.greatest, loops.int64(self._operands.sizes.items) - 1
        with self._each_head() as h:
            T.buffer_store(kept.before, greatest[h], [h])
        with loops.serial(count) as i:
            item = self._item(start + i)
            later = self._item(T.bind(tirx.min(start + i + ROWS_AHEAD, last)))
            first = loops.int64(0)
            values = self._logit(kept, later, first), self._element(kept, later, first, first)
            ask_for_entries(later, values)
            with self._each_head() as h:
                logit = T.bind(self._logit(kept, item, h))
                T.buffer_store(kept.shares, logit, [i * self._block_heads + h])
                more = tirx.Select(logit > greatest[h], logit, greatest[h])
                T.buffer_store(greatest, more, [h])

    def _ask_for_values(self, kept: _Block, item: Any, h: Any) -> None:
        if self._is_whole:
            ask_for(lambda c: self._element(kept, item, h, c), self._block_columns)

    def _rescale(self, kept: _Block) -> None:
        """Make what there was relative to the logit that is the greatest now."""
        before, room = kept.before, self._block_columns
        with self._each_head() as h:
            factor = T.bind(self._raised(before[h], kept.greatest[h]))
            T.buffer_store(before, factor, [h])
            T.buffer_store(kept.total, kept.total[h] * before[h], [h])
            with loops.serial(kept.columns) as c:
                T.buffer_store(kept.sums, kept.sums[h * room + c] * before[h], [h * room + c])

    def _raise_logits(self, kept: _Block, start: Any, count: Any) -> None:
        """Make shares of the logits, and add them up."""
        shares = kept.shares
        with loops.serial(count) as i:
            item = self._item(start + i)
            with self._each_head() as h:
                # While powers are computed, the rows that they will weight are on their way.
                self._ask_for_values(kept, item, h)
                at = i * self._block_heads + h
                T.buffer_store(shares, self._raised(shares[at], kept.greatest[h]), [at])
                T.buffer_store(kept.total, kept.total[h] + shares[at], [h])

    def _add_values(self, kept: _Block, start: Any, count: Any) -> None:
        """Add the values of the updates, each times its share."""
        with loops.serial(count) as i:
            item = self._item(start + i)
            with self._each_head() as h:
                share = T.bind(kept.shares[i * self._block_heads + h])
                with self._columns_of(kept.columns) as c:
                    value = self._element(kept, item, h, c)
                    at = h * self._block_columns + c
                    T.buffer_store(kept.sums, kept.sums[at] + value * share, [at])

    def _store(self, kept: _Block) -> None:
        """Write the sums over the totals."""
        dtype, total = self._dtype, kept.total
        with self._each_head() as h:
            # What is raised by an infinite logit is no number, and so is every share.
            finite = tirx.abs(kept.greatest[h]) < tirx.const(float("inf"), dtype)
            nan = tirx.const(float("nan"), dtype)
            T.buffer_store(total, tirx.Select(finite, total[h], nan), [h])
            place = (kept.first_head + h) * self._columns
            to = T.bind(kept.row * self._width + place + kept.first)
            with loops.serial(kept.columns) as c:
                at = h * self._block_columns + c
                T.buffer_store(self._out, kept.sums[at] / total[h], [to + c])

    def _item(self, at: Any) -> Any:
        """The number of an update in the order."""
        return T.bind(loops.ordered_item(self._operands, at))

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

    def _logit(self, kept: _Block, item: Any, h: Any) -> Any:
        logit = self._rows.logit(item, h if self._is_whole else kept.first_head)
        return self._in_row(kept.row, logit)

    def _element(self, kept: _Block, item: Any, h: Any, c: Any) -> Any:
        head, column = (h, c) if self._is_whole else (kept.first_head, kept.first + c)
        return self._in_row(kept.row, self._rows.value(item, head, column))

    def _in_row(self, row: Any, expression: Any) -> Any:
        destination = self._updates.destination
        return expression if destination is None else substitute(expression, {destination: row})
