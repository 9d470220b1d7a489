"""Partitioned: buckets updates by destination, then applies each bucket in the cache."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import element
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div, round_up
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import combiners, costs, loops, memory_costs
from .steps.fills import fill_range

#: Bytes of output of one bucket, which stay in the second-level cache meanwhile.
_BUCKET_BYTES = 1 << 18
_MOST_BUCKETS = 2048
_LEAST_CHUNK = 8192
_MOST_CHUNKS = 64
#: Buckets are dealt out to this many tasks in turn, so that neighbouring hot buckets get to
#: different tasks.
_MOST_TASKS = 64


class Partitioned(Implementation):
    """One stable pass buckets updates by destination, the next one applies them in order.

    A bucket is a range of the output that fits the cache. It is copied or filled just before its
    updates are applied, so the output goes to memory once and is never read from it. Of rows, a
    bucket holds the numbers; of single elements, the values.
    """

    name = "partitioned"
    deterministic = True
    fuses = True
    fills = True
    summary = "updates scattered over an output larger than the caches, or few updates of one"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.reduces_into_data:
            return "it reduces into the data only"
        return loops.refusal_of_sizes(problem)

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _Partition(problem, sizes).workspace_bytes

    def cost(self, work: Work, config: Config) -> Terms:
        workers = costs.cores(work)
        moves_values = work.problem.width.is_one
        listed = work.items * (4 + (work.element if moves_values else 0))
        # Of rows it lists numbers, and comes to the updates in the order of destinations.
        apart = 0.0
        if not moves_values:
            apart = memory_costs.misses(work, workers, work.items, work.update_bytes)
        return {
            "launches": costs.threads(work, 4),
            "streams": memory_costs.moved(work) + work.streams(2 * listed),
            "finds": 3 * costs.find(work, work.items, workers),
            "updates": costs.combine(work, workers),
            "extremes": costs.extremes(work, workers),
            "waits": costs.again_soon(work, workers),
            "misses": apart,
            "buckets": work.cycles(20 * _MOST_CHUNKS * work.data_bytes / _BUCKET_BYTES),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        partition = _Partition(operands.problem, operands.sizes)
        if not partition.keys:
            return
        partition.emit(operands)


class _Partition:
    """The buckets of a problem, and the steps that fill and apply them."""

    def __init__(self, problem: ScatterProblem, sizes: Sizes) -> None:
        self.keys = loops.key_count(problem, sizes)
        self.items = loops.item_count(problem, sizes)
        self.width = 1 if problem.index_slice else sizes.slice
        self.work = sizes.data_size + sizes.batch * sizes.count * sizes.slice
        fitting = _BUCKET_BYTES // max(1, self.width * item_bytes(problem.data_dtype))
        fitting = max(fitting, ceil_div(self.keys, _MOST_BUCKETS), 1)
        self.shift = (fitting - 1).bit_length()
        self.buckets = ceil_div(self.keys, 1 << self.shift)
        #: One more bucket, for updates that are out of bounds.
        self.counters = self.buckets + 1
        self.chunk = max(ceil_div(self.items, _MOST_CHUNKS), _LEAST_CHUNK)
        self.chunks = ceil_div(self.items, self.chunk)
        self.key_dtype = "int32" if self.counters << self.shift < 2**31 else "int64"
        self.payload_dtype = loops.counter_dtype(problem)
        if self.moves_values:
            self.payload_dtype = problem.data_dtype

    @property
    def moves_values(self) -> bool:
        """Whether a bucket holds the updates' values, not their numbers."""
        return bool(self.width == 1)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace: keys, values or numbers, and the begins of buckets."""
        return self._payload_offset + self._payload_bytes + self.chunks * self.counters * 8

    @property
    def _payload_offset(self) -> int:
        return int(round_up(self.items * (4 if self.key_dtype == "int32" else 8), 64))

    @property
    def _payload_bytes(self) -> int:
        return int(round_up(self.items * item_bytes(self.payload_dtype), 64))

    def emit(self, operands: Operands) -> None:
        """Emit all steps, the copy of the data included."""
        self._operands = operands
        view, offset = loops.workspace_view, self._payload_offset
        if self.items:
            self._keys = view(operands, 0, self.items, self.key_dtype)
            self._payload = view(operands, offset, self.items, self.payload_dtype)
            counters = self.chunks * self.counters
            self._places = view(operands, offset + self._payload_bytes, counters, "int64")
            loops.for_each_chunk(self.items, self.chunk, self.items, self._count)
            self._prefix()
            loops.for_each_chunk(self.items, self.chunk, self.items, self._place)
        tasks = min(self.buckets, _MOST_TASKS)

        def reduce(task: Any) -> None:
            with loops.serial(ceil_div(self.buckets, tasks)) as turn:
                bucket = T.bind(turn * tasks + task)
                with T.If(bucket < self.buckets):
                    with T.Then():
                        self._reduce(bucket)

        loops.for_each(tasks, self.work, reduce)

    def _count(self, start: Any, length: Any) -> None:
        first = T.bind(tirx.truncdiv(start, self.chunk) * self.counters)
        with loops.serial(self.counters) as bucket:
            T.buffer_store(self._places, loops.int64(0), [first + bucket])
        with loops.serial(length) as i:
            _, _, _, key = self._item(start + i)
            at = T.bind(first + tirx.shift_right(key, loops.int64(self.shift)))
            T.buffer_store(self._places, self._places[at] + 1, [at])

    def _prefix(self) -> None:
        """Replace counts by the position of each chunk's first item in each bucket."""
        total = loops.small_buffer(1, "int64")
        T.buffer_store(total, loops.int64(0), [0])
        with loops.serial(self.counters) as bucket:
            with loops.serial(self.chunks) as c:
                at = T.bind(c * self.counters + bucket)
                here = T.bind(self._places[at])
                T.buffer_store(self._places, total[0], [at])
                T.buffer_store(total, total[0] + here, [0])

    def _place(self, start: Any, length: Any) -> None:
        first = T.bind(tirx.truncdiv(start, self.chunk) * self.counters)
        with loops.serial(length) as i:
            item = T.bind(start + i)
            b, k, s, key = self._item(item)
            at = T.bind(first + tirx.shift_right(key, loops.int64(self.shift)))
            to = T.bind(self._places[at])
            T.buffer_store(self._places, to + 1, [at])
            T.buffer_store(self._keys, tirx.Cast(self.key_dtype, key), [to])
            payload = tirx.Cast(self.payload_dtype, item)
            if self.moves_values:
                operands = self._operands
                payload = operands.updates[loops.update_position(operands, b, k, s)]
            T.buffer_store(self._payload, payload, [to])

    def _item(self, item: Any) -> tuple[Any, Any, Any, Any]:
        """The batch, count and slice coordinates of an item, and its key."""
        operands = self._operands
        b, k, s = loops.item_coordinates(operands, item)
        place, valid = loops.index_place(operands, item)
        key = loops.key_number(operands, b, place, s)
        nowhere = loops.int64(self.buckets << self.shift)
        return b, k, s, T.bind(tirx.Select(valid, key, nowhere))

    def _reduce(self, bucket: Any) -> None:
        operands = self._operands
        if operands.problem.fill or operands.data is not None:
            low = T.bind(bucket * ((1 << self.shift) * self.width))
            room = loops.minimum(self.keys * self.width - low, (1 << self.shift) * self.width)
            begin_range = fill_range if operands.problem.fill else loops.copy_range
            begin_range(operands, low, room)
        if not self.items:
            return
        # After it has placed its items, the last chunk's position is the begin of the next bucket.
        ends = T.bind((self.chunks - 1) * self.counters + bucket)
        before = self._places[tirx.max(ends - 1, loops.int64(0))]
        begin = T.bind(tirx.if_then_else(bucket == 0, loops.int64(0), before))
        with loops.serial(self._places[ends] - begin) as i:
            key = T.bind(loops.int64(self._keys[begin + i]))
            if self.moves_values:
                self._apply(key, self._payload[begin + i])
            else:
                item = T.bind(loops.int64(self._payload[begin + i]))
                b, k, s = loops.item_coordinates(operands, item)
                update = T.bind(loops.update_position(operands, b, k, s))
                step = int(operands.problem.update_slice)
                with loops.serial(self.width) as c:
                    self._apply(
                        key * self.width + c,
                        element(operands.updates, update, c * step, self.width),
                    )

    def _apply(self, at: Any, update: Any) -> None:
        problem, out = self._operands.problem, self._operands.out
        value = combiners.combine(problem.reduces, problem.data_dtype, out[at], update)
        T.buffer_store(out, value, [at])
