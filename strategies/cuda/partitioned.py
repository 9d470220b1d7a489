"""Partitioned: buckets updates by destination, and reduces each bucket in shared memory."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit
from tvm_scatter.strategies.cuda.steps.sorting import Layout

from .machines import multiprocessors
from .steps import shared_contention

_THREADS = device_constant("partition", "kPartitionThreads")
_HOT_PLACES = device_constant("partition", "slots")
#: Bytes of static shared memory of a scan in a block: a sum for each warp.
_SCAN_BYTES = _THREADS // 32 * 4
_MOST_BUCKETS = device_constant("partition", "kMostBuckets")
_ENOUGH_BUCKETS = 128
#: Updates that each thread moves into buckets at a time, in order of preference: more are better.
_PER_THREAD = (16, 8, 4)
#: The fewest updates that a block reduces, and the multiple of the mean from which on several
#: blocks share a bucket.
_LEAST_UNIT = 1 << 15
_UNEVEN = 2
#: Blocks of a multiprocessor that count updates, and how many a thread counts at least.
_COUNT_BLOCKS, _ITEMS_COUNTED = 8, 8
_REGIONS = ("counts", "begins", "cursors", "first_units", "places", "values")


class Partitioned(Implementation):
    """One pass buckets the updates by the high bits of their destination, the next one reduces."""

    name = "partitioned"
    takes_empty = False
    fuses = True
    summary = "many scattered single-element reductions into an output larger than the L2 cache"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not (problem.reduces.merges and problem.include_self):
            return "it reduces into the data only"
        if not problem.width.is_one:
            return "it moves single elements, not rows"
        if not problem.is_static:
            return "the sizes must be known"
        if not self.knobs(problem, target)["bucket_bits"]:
            return f"{problem.destinations} places do not fit {_MOST_BUCKETS} buckets"
        if _per_thread(problem, target) is None:
            return "a block has too little shared memory to order its updates in"
        if problem.items.constant >= 1 << 32:
            return "positions in a bucket are 32 bits wide"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        places, element = problem.destinations.constant, accumulate_bytes(problem.data_dtype)
        # Enough buckets for all multiprocessors, and not more: fewer, wider ones are filled faster.
        wide = [bits for bits in (14, 13) if places >> bits >= _ENOUGH_BUCKETS]
        bits = tuple(
            bits
            for bits in dict.fromkeys((*wide, 12, 13, 14, 15))
            if _shared_bytes(element, bits) <= shared_memory_limit(target)
            and ceil_div(places, 1 << bits) <= _MOST_BUCKETS
        )
        return {"bucket_bits": bits}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _layout(problem, sizes, config).total

    def cost(self, work: Work, config: Config) -> Terms:
        moved = 2 * work.data_bytes + work.operand_bytes + work.index_bytes
        moved = moved + 2 * work.items * (2 + work.element)
        buckets = work.destinations / (1 << config["bucket_bits"])
        # Blocks share a bucket if it has twice the mean of the updates.
        blocks = smaller(1.5 * buckets + 1, float(work.machine.multiprocessors))
        # A unit is the work of one block, so no more than that waits for each other.
        unit = larger(_UNEVEN * work.items / larger(buckets, 1.0), float(_LEAST_UNIT))
        hottest = smaller(work.hottest, unit)
        tried = shared_contention.instructions(work) * shared_contention.repeats(
            work, float(_THREADS), smaller(1 << config["bucket_bits"], work.destinations)
        )
        return {
            "launches": work.launches(6),
            "streams": work.streams(moved),
            "updates": work.sectors(work.items),
            "hot updates": work.cycles(shared_contention.of_lanes(work, hottest)),
            "buckets": work.cycles(2000 * buckets / work.machine.multiprocessors),
            "units": work.cycles(work.items / blocks * tried),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        bits = config["bucket_bits"]
        buckets = ceil_div(sizes.destinations, 1 << bits)
        unit = max(_LEAST_UNIT, _UNEVEN * ceil_div(sizes.items, buckets))
        layout = _layout(problem, sizes, config)
        arguments = layout.arguments(*_REGIONS)
        pointers = "".join(
            layout.pointer(name, "uint32")
            for name in ("counts", "begins", "cursors", "first_units")
        )
        pointers += layout.pointer("places", "unsigned short") + layout.pointer("values", "Data")
        pointers += "".join(f"  (void){name};\n" for name in _REGIONS)
        source = "out" if operands.data is None else "data"

        def step(
            body: str, blocks: Any, shared_bytes: int = 0, resolves_every_index: bool = False
        ) -> None:
            launch(
                operands,
                ("partition",),
                pointers + body,
                blocks,
                _THREADS,
                arguments,
                shared_bytes,
                resolves_every_index,
            )

        step(f"  fill(counts, 0u, {buckets});", 1)
        per_thread = _per_thread(problem, operands.target)
        assert per_thread is not None
        most = _COUNT_BLOCKS * multiprocessors(operands.target)
        spread = min(ceil_div(sizes.items, _ITEMS_COUNTED * _THREADS), most)
        step(
            f"  count_buckets<P, {bits}>(counts, indices, sizes, {buckets});",
            spread,
            resolves_every_index=True,
        )
        step(
            f"  plan_buckets(begins, cursors, first_units, counts, {buckets}, {unit}u);",
            1,
        )
        step(
            f"  fill_buckets<P, {bits}, {per_thread}>(places, values, cursors, updates, indices, "
            f"sizes, {buckets}, shared);",
            ceil_div(sizes.items, per_thread * _THREADS),
            _order_bytes(problem, per_thread, buckets),
        )
        if operands.data is not None:
            step(f"  copy_shared_buckets<P, {bits}>(out, data, first_units, sizes);", buckets)
        step(
            f"  reduce_units<P, {bits}>(out, {source}, places, values, begins, first_units, sizes, "
            f"{buckets}, {unit}u, shared);",
            buckets + sizes.items // unit,
            _shared_bytes(accumulate_bytes(problem.data_dtype), bits),
        )


def _order_bytes(problem: ScatterProblem, per_thread: int, buckets: int) -> int:
    """Bytes of shared memory of a block that orders its updates by bucket."""
    return buckets * 8 + per_thread * _THREADS * (4 + item_bytes(problem.data_dtype))


def _per_thread(problem: ScatterProblem, target: Any) -> int | None:
    limit = shared_memory_limit(target) - _SCAN_BYTES
    fitting = (n for n in _PER_THREAD if _order_bytes(problem, n, _MOST_BUCKETS) <= limit)
    return next(fitting, None)


def _shared_bytes(element: int, bits: int) -> int:
    """Bytes of shared memory of a reducing block: a bucket, and each lane's sums of hot places."""
    return (element << bits) + _HOT_PLACES * (32 * element + 4)


def _layout(problem: ScatterProblem, sizes: Sizes, config: Config) -> Layout:
    buckets = ceil_div(sizes.destinations, 1 << config["bucket_bits"])
    layout = Layout()
    for name in ("counts", "begins", "cursors", "first_units"):
        layout.add(name, (buckets + 1) * 4)
    layout.add("places", sizes.items * 2)
    layout.add("values", sizes.items * item_bytes(problem.data_dtype))
    return layout
