"""A stable radix sort of items by destination, over only the bits that the keys need."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div, round_up

from . import loops

#: The bits of a digit: 2048 counters fit the first-level cache beside the streamed data.
DIGIT_BITS = 11
_LEAST_CHUNK = 8192
_MOST_CHUNKS = 64


class Half:
    """One half of a buffer. The passes of the sort alternate between its two halves."""

    def __init__(self, buffer: Any, start: Any) -> None:
        self._buffer = buffer
        self._start = start

    def __getitem__(self, position: Any) -> Any:
        return self._buffer[self._start + position]

    def store(self, position: Any, value: Any) -> None:
        """Write an entry."""
        value = tirx.Cast(str(self._buffer.dtype), value)
        T.buffer_store(self._buffer, value, [self._start + position])


class RadixSort:
    """Sorts the items of a problem by key; an item whose index is out of bounds comes last."""

    def __init__(self, problem: ScatterProblem, sizes: Sizes) -> None:
        self.keys = loops.key_count(problem, sizes)
        self.items = loops.item_count(problem, sizes)
        places = problem.destinations
        self.key_dtype = "int64"
        if places.is_static and places.constant < 2**31 - 1:
            self.key_dtype = "int32"
        self.item_dtype = loops.counter_dtype(problem)
        self.buckets = 1 << DIGIT_BITS
        self.chunk = at_least(ceil_div(self.items, _MOST_CHUNKS), _LEAST_CHUNK)
        self.chunks = at_least(ceil_div(self.items, self.chunk), 1)

    @property
    def workspace_bytes(self) -> Any:
        """Bytes of the workspace: two halves of keys, two of items, a histogram for each chunk."""
        return self._keys_bytes + self._items_bytes + self.chunks * (self.buckets * 8)

    @property
    def _keys_bytes(self) -> Any:
        return round_up(self.items * 2 * item_bytes(self.key_dtype), 64)

    @property
    def _items_bytes(self) -> Any:
        return round_up(self.items * 2 * item_bytes(self.item_dtype), 64)

    def emit(self, operands: Operands, offset: Any) -> tuple[Half, Half]:
        """Emit the sort. Returns the sorted keys and the items in the same order."""
        view = loops.workspace_view
        self._operands = operands
        # Sorting is chosen for many items, so a symbolic number is assumed to be large.
        self._work = self.items if isinstance(self.items, int) else None
        self.items, self.chunk = loops.settle(self.items), loops.settle(self.chunk)
        self.keys, self.chunks = loops.settle(self.keys), loops.settle(self.chunks)
        self._keys = view(operands, offset, self.items * 2, self.key_dtype)
        offset = offset + self._keys_bytes
        self._items = view(operands, offset, self.items * 2, self.item_dtype)
        offset = offset + self._items_bytes
        self._places = view(operands, offset, self.chunks * self.buckets, "int64")

        passes, bits = self._digits()
        if isinstance(passes, int):
            for number in range(passes):
                self._pass(number, bits)
        else:
            self._pass(0, bits)
            with T.serial(loops.int64(1), passes) as number:
                self._pass(number, bits)
        last = self._start(passes)
        return Half(self._keys, last), Half(self._items, last)

    def _digits(self) -> tuple[Any, Any]:
        """The number of passes and the bits of a digit. One more key is for items out of bounds."""
        if isinstance(self.keys, int):
            bits = max(self.keys.bit_length(), 1)
            passes = -(-bits // DIGIT_BITS)
            return passes, -(-bits // passes)
        needed = loops.small_buffer(1, "int64")
        T.buffer_store(needed, loops.int64(1), [0])
        with T.serial(loops.int64(1), loops.int64(63)) as bit:
            with T.If(tirx.shift_right(loops.int64(self.keys), bit) > 0):
                with T.Then():
                    T.buffer_store(needed, bit + 1, [0])
        passes = T.bind(ceil_div(needed[0], DIGIT_BITS))
        return passes, T.bind(ceil_div(needed[0], passes))

    def _start(self, number: Any) -> Any:
        """The offset of the half that pass ``number`` reads."""
        return number % 2 * self.items

    def _pass(self, number: Any, bits: Any) -> None:
        first = isinstance(number, int) and number == 0
        source = Half(self._keys, self._start(number)), Half(self._items, self._start(number))
        target = (
            Half(self._keys, self._start(number + 1)),
            Half(self._items, self._start(number + 1)),
        )
        if isinstance(bits, int) and isinstance(number, int):
            shift: Any = tirx.const(number * bits, self.key_dtype)
            mask: Any = tirx.const((1 << bits) - 1, self.key_dtype)
            buckets: Any = 1 << bits
        else:
            shift = T.bind(tirx.Cast(self.key_dtype, number * bits))
            buckets = T.bind(tirx.shift_left(loops.int64(1), bits))
            mask = T.bind(tirx.Cast(self.key_dtype, buckets - 1))

        def digit(key: Any) -> Any:
            return loops.int64(tirx.bitwise_and(tirx.shift_right(key, shift), mask))

        def count(c: Any) -> None:
            start, length = self._bounds(c)
            base = T.bind(c * self.buckets)
            with loops.serial(buckets) as d:
                T.buffer_store(self._places, loops.int64(0), [base + d])
            with loops.serial(length) as i:
                if first:
                    source[0].store(start + i, self._key(start + i))
                at = T.bind(base + digit(source[0][start + i]))
                T.buffer_store(self._places, self._places[at] + 1, [at])

        def place(c: Any) -> None:
            start, length = self._bounds(c)
            base = T.bind(c * self.buckets)
            with loops.serial(length) as i:
                key = T.bind(source[0][start + i])
                at = T.bind(base + digit(key))
                to = T.bind(self._places[at])
                T.buffer_store(self._places, to + 1, [at])
                target[0].store(to, key)
                target[1].store(to, start + i if first else source[1][start + i])

        loops.for_each(self.chunks, self._work, count)
        self._prefix(buckets)
        loops.for_each(self.chunks, self._work, place)

    def _bounds(self, c: Any) -> tuple[Any, Any]:
        return loops.chunk_bounds(c, self.items, self.chunk)

    def _prefix(self, buckets: Any) -> None:
        """Replace counts by the position of the first item of each chunk and digit."""
        total = loops.small_buffer(1, "int64")
        T.buffer_store(total, loops.int64(0), [0])
        with loops.serial(buckets) as d:
            with loops.serial(self.chunks) as c:
                at = T.bind(c * self.buckets + d)
                here = T.bind(self._places[at])
                T.buffer_store(self._places, total[0], [at])
                T.buffer_store(total, total[0] + here, [0])

    def _key(self, item: Any) -> Any:
        operands = self._operands
        b, _, s = loops.item_coordinates(operands, item)
        place, valid = loops.index_place(operands, item)
        key = loops.key_number(operands, b, place, s)
        return tirx.Cast(self.key_dtype, tirx.Select(valid, key, loops.int64(self.keys)))
