"""A stable sort of items by destination in one pass, where counters for all of them are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div, round_up

from . import loops
from .records import Field

#: With more counters than these, which take 1 MB, counting an item misses the cache of a core.
_MOST_COUNTERS = 1 << 18
#: Items of a chunk, and of a chunk for each counter, which must be cleared and added up.
_LEAST_CHUNK, _ITEMS_PER_COUNTER = 8192, 2
_MOST_CHUNKS = 64


class CountingSort:
    """Sorts the items of a problem by key; an item whose index is out of bounds comes last.

    Each chunk counts its items by key. The sums of the counts before are where they go.
    """

    def __init__(self, problem: ScatterProblem, sizes: Sizes) -> None:
        self.dtype = loops.counter_dtype(problem)
        self.keys = loops.key_count(problem, sizes)
        self.items = loops.item_count(problem, sizes)
        # One more counter is for items out of bounds.
        self._counters = self.keys + 1
        least = at_least(self.keys * _ITEMS_PER_COUNTER, _LEAST_CHUNK)
        self.chunk = at_least(ceil_div(self.items, _MOST_CHUNKS), least)
        self.chunks = at_least(ceil_div(self.items, self.chunk), 1)

    @staticmethod
    def suits(problem: ScatterProblem) -> bool:
        """Whether counters are known to be few, and fewer than items if these are known."""
        sizes: Any = problem
        keys, items = loops.key_count(problem, sizes), loops.item_count(problem, sizes)
        most = min(items.constant, _MOST_COUNTERS) if items.is_static else _MOST_COUNTERS
        return bool(keys.is_static and keys.constant < most)

    @property
    def workspace_bytes(self) -> Any:
        """Bytes of the workspace: counters of each chunk."""
        return round_up(self.chunks * self._counters * item_bytes(self.dtype), 64)

    @property
    def offsets_bytes(self) -> Any:
        """Bytes of the offsets."""
        return round_up(self._counters * item_bytes(self.dtype), 64)

    def view_offsets(self, operands: Operands, offset: Any) -> Any:
        """A buffer for the offsets, so many bytes behind the begin of the workspace."""
        return loops.workspace_view(operands, offset, self._counters, self.dtype)

    def emit(
        self, operands: Operands, offset: Any, offsets: Any, put: Callable[[Any, Any], None]
    ) -> None:
        """Emit the sort.

        Parameters
        ----------
        offset : int or expression
            Where the workspace begins, in bytes.
        offsets : buffer
            For the position of each key's first item, and behind them that of the end.
        put : callable
            Emits the store of an item, from its position in the order and its number.
        """
        self._operands = operands
        self.items, self.chunk, self.chunks = map(
            loops.settle, (self.items, self.chunk, self.chunks)
        )
        places = loops.workspace_view(operands, offset, self.chunks * self._counters, self.dtype)

        def count(c: Any) -> None:
            start, length = loops.chunk_bounds(c, self.items, self.chunk)
            base = T.bind(c * self._counters)
            with loops.serial(self._counters) as key:
                T.buffer_store(places, tirx.const(0, self.dtype), [base + key])
            with loops.serial(length) as i:
                at = T.bind(base + self._key(T.bind(start + i)))
                T.buffer_store(places, places[at] + 1, [at])

        def place(c: Any) -> None:
            start, length = loops.chunk_bounds(c, self.items, self.chunk)
            base = T.bind(c * self._counters)
            with loops.serial(length) as i:
                item = T.bind(start + i)
                at = T.bind(base + self._key(item))
                to = T.bind(places[at])
                T.buffer_store(places, to + 1, [at])
                put(loops.int64(to), item)

        loops.for_each(self.chunks, self.items, count)
        self._add_up(places, offsets)
        loops.for_each(self.chunks, self.items, place)

    def _add_up(self, places: Any, offsets: Any) -> None:
        """Replace counts by the position of the first item of each chunk and key."""
        total = loops.small_buffer(1, self.dtype)
        T.buffer_store(total, tirx.const(0, self.dtype), [0])
        with loops.serial(self._counters) as key:
            Field(offsets).store(key, total[0])
            with loops.serial(self.chunks) as c:
                at = T.bind(c * self._counters + key)
                here = T.bind(places[at])
                T.buffer_store(places, total[0], [at])
                T.buffer_store(total, total[0] + here, [0])

    def _key(self, item: Any) -> Any:
        operands = self._operands
        b, _, s = loops.item_coordinates(operands, item)
        place, valid = loops.index_place(operands, item)
        key = loops.key_number(operands, b, place, s)
        return tirx.Select(valid, key, loops.int64(self.keys))
