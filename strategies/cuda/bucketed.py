"""Bucketed: lists the updates of each place, then writes every output row once."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.first_of import emit_first
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_most, ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.selection.arithmetic import both, choose, is_at_most, larger, real, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import LINE_BYTES, Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import by_offsets, launch
from tvm_scatter.strategies.cuda.codegen.owned import carried_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit
from tvm_scatter.strategies.cuda.steps import listed_rows
from tvm_scatter.strategies.cuda.steps.listed_rows import (
    LEAST_CHUNK,
    LONG_LIST,
    ListedRows,
    as_number,
    chunk_entries,
)

from .machines import multiprocessors
from .steps import contention, sorting
from .steps.bucket_plan import TILE_THREADS, BucketPlan
from .steps.bucket_sizes import (
    MOST_BITS,
    MOST_BUCKETS,
    MOST_PLACES,
    STATIC_BYTES,
    UNIT_ITEMS,
    ExpectedBuckets,
    bucket_bits,
    room_of,
    sectors_of_sums,
)

_UNIT_THREADS = device_constant("bucketed", "kUnitThreads")
_PER_THREAD = (16, 8, 4, 2, 1)
#: The most updates: they are counted in 31 bits.
_LIMIT = 1 << 31


#: Cycles to cut buckets into units, and of a multiprocessor for each of their updates.
_CUT_CYCLES, _UNIT_ITEM_CYCLES = 10000.0, 2.0
#: Accesses for each sector of the sums of units: 40 million updates with an eighth of a sector each
#: take 650 us with their rows, 115 million with two 13 500, of which the rows are 7100.
_ACCESSES_OF_SUM = 1.0
#: Of a hot place that has more updates than this, all blocks share the units: eight million of 40
#: cost 470 to 740 us, as these do.
_MOST_ALONE = float(1 << 21)
#: Bytes of what lists carry that a thread of a tile reads together with its indices. Tiles take 0.8
#: of the time by 32; 64 take registers, and the whole 1.01 of its time.
_AHEAD_BYTES = 32
#: Blocks that order a bucket for which a multiprocessor should have shared memory.
_BUCKETS_TOGETHER = 2
#: Blocks of a multiprocessor that sum chunks and units, whose number only the device knows.
#: Registers must suffice for them where a row is computed from one vector: NVIDIA's compiler would
#: take those of three or two.
_SUM_BLOCKS = 4


class Bucketed(Implementation):
    """Two orderings in shared memory make the lists; a balanced reduction reads them.

    Sums are accumulated as in ``segmented``, but in the order in which atomic counters were
    reached, which differs from run to run.
    """

    name = "bucketed"
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    # Measured: up to 9 us of 77 with uniform destinations, and 49 of 69 with skewed ones.
    order_cost = 0.12
    summary = "many rows into fewer places, whether destinations are skewed or not"

    takes_all_sizes = False

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        if not problem.is_static:
            return None
        if problem.items.constant >= _LIMIT:
            return f"it counts fewer than {_LIMIT} updates, not {problem.items}"
        if not self.knobs(problem, target)["bucket_bits"]:
            return f"it takes at most {MOST_PLACES} places, not {problem.destinations}"
        return None

    def takes_sizes(self, sizes: Sizes) -> Any:
        most = is_at_most(real(sizes.destinations), float(MOST_PLACES))
        return both(most, is_at_most(real(sizes.items), float(_LIMIT - 1)))

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        if not problem.is_static:
            return {"threads": (128, 256)}
        places = problem.destinations.constant
        items, shared = problem.items.constant, shared_memory_limit(target)
        possible = [
            bits
            for bits in range(MOST_BITS + 1)
            if ceil_div(places, 1 << bits) <= MOST_BUCKETS or room_of(problem, bits, shared)
        ]
        preferred = bucket_bits(problem, shared)
        near = sorted(possible, key=lambda bits: (abs(bits - preferred), bits))[:3]
        most = max([MOST_BUCKETS, *(ceil_div(places, 1 << bits) for bits in near)])
        fits = [n for n in _PER_THREAD if _tile_bytes(n, most) <= shared]
        # A tile for each multiprocessor: the larger they are, the longer the runs of their buckets.
        tiles = multiprocessors(target)
        enough = [n for n in fits if n * TILE_THREADS * tiles <= items] or fits[-1:]
        more = [n for n in fits if n in (2 * enough[0], enough[0] // 2)]
        return {
            "bucket_bits": tuple(near),
            "per_thread": (enough[0], *more),
            "threads": (128, 256),
        }

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return BucketPlan(problem, sizes, config, target).layout.total

    def cost(self, work: Work, config: Config) -> Terms:
        items_of_tile = config.get("per_thread", _PER_THREAD[1]) * TILE_THREADS
        tiles = larger(work.items / items_of_tile, 1.0)
        expected = ExpectedBuckets.of(work, config)
        buckets, places = expected.buckets, expected.places
        terms = dict(listed_rows.cost(work, listed=True))
        # Larger ones are cut into units, which blocks look for, order and add up.
        each = _UNIT_ITEM_CYCLES / work.machine.multiprocessors
        sums = _ACCESSES_OF_SUM * sectors_of_sums(places, expected.sectors_of_sum)
        cut = work.cycles(_CUT_CYCLES + each * work.items) + work.sectors(sums * work.items)
        terms["long lists"] = terms["long lists"] + choose(expected.are_listed, 0.0, cut)
        return {
            # There are four. Each begins while the one before it ends.
            "launches": work.launches(3),
            **terms,
            # A run of each tile in a bucket: where it begins, and sectors shared with others.
            "items": work.streams(work.index_bytes + 20 * work.items)
            + work.sectors(0.5 * tiles * buckets),
            # A bucket of one place is in order.
            "hot bucket": work.cycles(
                0.05 * expected.bits * smaller(work.hottest, _MOST_ALONE)
                + _units_of_columns(work, expected)
            ),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        plan = BucketPlan(operands.problem, operands.sizes, config, operands.target)
        if not operands.problem.is_static:
            most = f"at most {_LIMIT - 1} updates of {MOST_PLACES} places can be put into buckets"
            taken = self.takes_sizes(operands.sizes)
            with T.Assert(taken, f"{operands.signature.operator}: {most}"):
                pass
            plan.bits = T.bind(plan.bits)

        def put_and_reduce(given: Operands) -> None:
            carried = carried_bytes(given, widest_vector(given.problem))
            _list_updates(given, plan, carried)
            _reduce(given, plan, config["threads"], carried > 0)

        by_offsets(operands, put_and_reduce)


def _units_of_columns(work: Work, expected: ExpectedBuckets) -> Any:
    """Cycles for which the units of a bucket that has many columns of a hot row add their sums.

    Each unit has the places of most of these columns, and those of a line take turns.
    """
    if not (work.problem.index_slice and work.problem.width.is_one):
        return 0.0
    columns = smaller(work.slice, expected.places)
    hottest = larger(work.items / expected.buckets, work.hottest * columns)
    near = smaller(columns, LINE_BYTES / work.element)
    taken = hottest / UNIT_ITEMS[0] * near * contention.of_sums(work)
    return choose(is_at_most(hottest, float(expected.most)), 0.0, taken)


def _tile_bytes(per_thread: int, buckets: int, carried: int = 0) -> int:
    """Bytes of shared memory of a block that orders a tile, with so many carried for each item."""
    return per_thread * TILE_THREADS * (4 + carried) + (buckets + 1) * 4


def _list_updates(operands: Operands, plan: BucketPlan, carried: int) -> None:
    carries = carried > 0
    text, arguments = plan.declarations(carries)

    def step(
        body: str,
        blocks: Any,
        threads: int,
        shared_bytes: int,
        further: sorting.Arguments,
        **more: Any,
    ) -> None:
        launch(
            operands,
            ("bucketed",),
            text + body,
            blocks,
            threads,
            {**arguments, **further},
            shared_bytes,
            owns=carries,
            overlaps=True,
            static_bytes=STATIC_BYTES,
            **more,
        )

    count, further = as_number("bucket_count", plan.buckets)

    def order_tiles(per_thread: int) -> None:
        ahead = carries and carried * per_thread <= _AHEAD_BYTES
        step(
            f"  order_tile<P, {per_thread}, {str(ahead).lower()}>(buckets, indices, updates, "
            f"sizes, {count}, shared);",
            plan.tiles,
            TILE_THREADS,
            _tile_bytes(per_thread, plan.most_buckets, carried if ahead else 0),
            further,
            resolves_every_index=True,
        )

    emit_first(
        [(many, partial(order_tiles, number)) for many, number in plan.forms],
        partial(order_tiles, plan.per_thread),
    )
    chunk, further = as_number("entries_of_chunk", chunk_entries(operands.problem, operands.sizes))
    room = plan.room
    together = _BUCKETS_TOGETHER * (room.bytes(plan.most_bits, carried) + STATIC_BYTES)
    held = carried if together <= shared_memory_limit(operands.target) else 0
    step(
        f"  list_bucket<P, {plan.most_bits}, {room.threads}, {room.most}, {str(held > 0).lower()}>("
        f"buckets, sums, sizes, {chunk}, shared);",
        plan.buckets,
        room.threads,
        room.bytes(plan.most_bits, held),
        further,
    )


def _reduce(operands: Operands, plan: BucketPlan, threads: int, carries: bool) -> None:
    text, arguments = plan.declarations(carries)
    items = operands.sizes.items
    sums = not isinstance(items, int) or items > LONG_LIST
    if sums:
        room = f"  __shared__ EntryRoom<{plan.most_bits}, kUnitThreads, {plan.unit_items}> room;\n"
        rows = ListedRows(operands, "bucketed", text + room, arguments)
        most = _SUM_BLOCKS * multiprocessors(operands.target)
        parts = ceil_div(ceil_div(items, LEAST_CHUNK) * rows.lanes, _UNIT_THREADS)
        rows.sum(
            "sum_slots<P, {lanes}, {vector}, {columns}>(room, sums, buckets, updates, sizes, "
            "tiles);",
            at_most((plan.units + parts) * rows.tiles, most),
            _UNIT_THREADS,
            _SUM_BLOCKS,
            overlaps=True,
        )
    ListedRows(operands, "bucketed", text, arguments).write("buckets", threads, carries, sums)
