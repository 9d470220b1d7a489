"""Bucketed: lists the updates of each place, then writes every output row once."""

from __future__ import annotations

from functools import partial
from math import log
from typing import Any, NamedTuple

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.weighted_rows import WARP
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import (
    Sizes,
    at_least,
    at_most,
    ceil_div,
    maximum,
    minimum,
    power_of_two,
)
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.selection.arithmetic import (
    both,
    choose,
    is_at_most,
    larger,
    logarithm,
    real,
    smaller,
)
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import LINE_BYTES, SECTOR_BYTES, Terms, Work
from tvm_scatter.strategies.cuda.codegen.carried import MOST_BYTES
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import by_offsets, emit_first, launch
from tvm_scatter.strategies.cuda.codegen.owned import carried_bytes
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit
from tvm_scatter.strategies.cuda.steps import listed_rows
from tvm_scatter.strategies.cuda.steps.listed_rows import (
    LEAST_CHUNK,
    LONG_LIST,
    ListedRows,
    as_number,
    chunk_entries,
    declare_lists,
    shares_of_rows,
)

from .machines import multiprocessors
from .steps import contention, sorting

_TILE_THREADS = device_constant("bucketed", "kTileThreads")
_UNIT_THREADS = device_constant("bucketed", "kUnitThreads")
#: The most buckets, whose counters are in shared memory: more if each has many updates, because the
#: run of a tile in a bucket becomes short.
_MOST_BUCKETS, _MANY_BUCKETS = 2048, 4096
#: The same of a bucket's places.
_MOST_BITS = 11
#: The fewest buckets, so that all multiprocessors have work.
_ENOUGH_BUCKETS = 256
#: The most places that are taken where sizes are known at run time only.
_MOST_PLACES = _MOST_BUCKETS << _MOST_BITS
_MOST_OF_BUCKET = float(1 << _MOST_BITS)
#: Of a number the power of two that is not greater, in the mean over all numbers.
_ROUNDED_DOWN = 0.72
_PER_THREAD = (16, 8, 4, 2, 1)
#: Where sizes are known at run time only: from how many updates on a thread has so many, and how
#: many it has of fewer. Of five million 8 take 1.10 of the time in all, of a million as long.
_PER_THREAD_OF_MANY, _PER_THREAD_OF_FEW = ((1_500_000, 16), (300_000, 8)), 2


class _Room(NamedTuple):
    """The threads of a block that orders a bucket, and the most updates that it takes."""

    threads: int
    most: int

    @property
    def share(self) -> int:
        """The most updates of a bucket in the mean: some have more than others."""
        return self.most * 15 // 16

    def takes(self, items: int, buckets: int) -> bool:
        """Whether buckets fit."""
        return items <= self.share * buckets

    def bytes(self, bits: int, held: int) -> int:
        """Bytes of shared memory: of ``EntryRoom``, and of what is held of each update."""
        table = 2 * self.most // WARP + self.threads
        return self.most * (4 + 2 + held) + (table + (1 << bits) + 1) * 4


SMALL, LARGE = _Room(256, 4096), _Room(512, 8192)
#: The most updates that a bucket should have, in a small room and then in a large one.
_FILLS = (3072, 3840, 7680)
#: Sectors of sums for each update from which on buckets are listed in large rooms: with 0.125 they
#: take 1.03 to 1.25 of the time in which they are cut into units, with 0.5 0.5 to 0.93.
_WORTH_LISTING = 0.3
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
#: Bytes of the sums of one bucket, which one block initialises.
_SUM_BYTES = 1 << 18
#: Bytes of static shared memory of a block that orders a bucket, at most.
_STATIC_BYTES = 256
#: Blocks that order a bucket for which a multiprocessor should have shared memory.
_BUCKETS_TOGETHER = 2
#: Updates of a unit, into which larger buckets are cut: fewer if there is little work to share.
_UNIT_ITEMS = (1024, 512, 256)
_ENOUGH_UNITS = 1024
#: Blocks of a multiprocessor that sum chunks and units, whose number only the device knows.
#: Registers must suffice for them where a row is computed from one vector: NVIDIA's compiler would
#: take those of three or two.
_SUM_BLOCKS = 4
#: The most updates: they are counted in 31 bits.
_LIMIT = 1 << 31
_FIELDS = {
    "cursors": "uint64",
    "runs": "unsigned short",
    "entries": "uint32",
    "carried": "Entry",
    "places": "PlaceList",
    "list": "Entry",
    "parts": "ListPart",
    "units": "Unit",
}


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
            return f"it takes at most {_MOST_PLACES} places, not {problem.destinations}"
        return None

    def takes_sizes(self, sizes: Sizes) -> Any:
        most = is_at_most(real(sizes.destinations), float(_MOST_PLACES))
        return both(most, is_at_most(real(sizes.items), float(_LIMIT - 1)))

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        if not problem.is_static:
            return {"threads": (128, 256)}
        places = problem.destinations.constant
        items, shared = problem.items.constant, shared_memory_limit(target)
        possible = [
            bits
            for bits in range(_MOST_BITS + 1)
            if ceil_div(places, 1 << bits) <= _MOST_BUCKETS or _room(problem, bits, shared)
        ]
        preferred = _bucket_bits(problem, shared)
        near = sorted(possible, key=lambda bits: (abs(bits - preferred), bits))[:3]
        most = max([_MOST_BUCKETS, *(ceil_div(places, 1 << bits) for bits in near)])
        fits = [n for n in _PER_THREAD if _tile_bytes(n, most) <= shared]
        # A tile for each multiprocessor: the larger they are, the longer the runs of their buckets.
        tiles = multiprocessors(target)
        enough = [n for n in fits if n * _TILE_THREADS * tiles <= items] or fits[-1:]
        more = [n for n in fits if n in (2 * enough[0], enough[0] // 2)]
        return {
            "bucket_bits": tuple(near),
            "per_thread": (enough[0], *more),
            "threads": (128, 256),
        }

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _Plan(problem, sizes, config, target).layout.total

    def cost(self, work: Work, config: Config) -> Terms:
        items_of_tile = config.get("per_thread", _PER_THREAD[1]) * _TILE_THREADS
        tiles = larger(work.items / items_of_tile, 1.0)
        expected = _Expected.of(work, config)
        buckets, places = expected.buckets, expected.places
        terms = dict(listed_rows.cost(work, listed=True))
        # Larger ones are cut into units, which blocks look for, order and add up.
        each = _UNIT_ITEM_CYCLES / work.machine.multiprocessors
        sums = _ACCESSES_OF_SUM * _sectors_of_sums(places, expected.sectors_of_sum)
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
        plan = _Plan(operands.problem, operands.sizes, config, operands.target)
        if not operands.problem.is_static:
            most = f"at most {_LIMIT - 1} updates of {_MOST_PLACES} places can be put into buckets"
            taken = self.takes_sizes(operands.sizes)
            with T.Assert(taken, f"{operands.signature.operator}: {most}"):
                pass
            plan.bits = T.bind(plan.bits)

        def put_and_reduce(given: Operands) -> None:
            carried = carried_bytes(given, widest_vector(given.problem))
            _list_updates(given, plan, carried)
            _reduce(given, plan, config["threads"], carried > 0)

        by_offsets(operands, put_and_reduce)


class _Expected(NamedTuple):
    """What costs ask of buckets. Of sizes that are known at run time these are expressions.

    Attributes
    ----------
    bits, places : float or expression
        The logarithm of the number of places of a bucket, and this number.
    buckets : float or expression
        The number of buckets.
    most : int
        The most updates of a bucket that a block lists.
    are_listed : bool or condition
        Whether blocks list buckets, and do not cut them into units.
    sectors_of_sum : number or expression
        Sectors of memory that the sum of a place takes.
    """

    bits: Any
    places: Any
    buckets: Any
    most: int
    are_listed: Any
    sectors_of_sum: Any

    @staticmethod
    def of(work: Work, config: Config) -> _Expected:
        """The buckets of some work."""
        problem = work.problem
        if not problem.is_static:
            return _Expected._at_run_time(work)
        bits = config["bucket_bits"]
        places, room = float(1 << bits), _room(problem, bits, work.machine.shared_bytes)
        buckets = larger(work.destinations / places, 1.0)
        most = (room or SMALL).most
        return _Expected(bits, places, buckets, most, bool(room), _sectors_of_sum(problem))

    @staticmethod
    def _at_run_time(work: Work) -> _Expected:
        bytes_of_sum = work.width * accumulate_bytes(work.problem.data_dtype)
        few = _few_places(work.destinations, work.items, bytes_of_sum)
        places = larger(larger(_ROUNDED_DOWN * few, work.destinations / _MOST_BUCKETS), 1.0)
        buckets = larger(work.destinations / places, 1.0)
        listed = is_at_most(work.items, SMALL.share * buckets)
        sectors = larger(bytes_of_sum / SECTOR_BYTES, 1.0)
        return _Expected(logarithm(places) / log(2), places, buckets, SMALL.most, listed, sectors)


def _units_of_columns(work: Work, expected: _Expected) -> Any:
    """Cycles for which the units of a bucket that has many columns of a hot row add their sums.

    Each unit has the places of most of these columns, and those of a line take turns.
    """
    if not (work.problem.index_slice and work.problem.width.is_one):
        return 0.0
    columns = smaller(work.slice, expected.places)
    hottest = larger(work.items / expected.buckets, work.hottest * columns)
    near = smaller(columns, LINE_BYTES / work.element)
    taken = hottest / _UNIT_ITEMS[0] * near * contention.of_sums(work)
    return choose(is_at_most(hottest, float(expected.most)), 0.0, taken)


def _room(problem: ScatterProblem, bits: int, shared_bytes: int) -> _Room | None:
    """The room of a bucket of so many places; none if such buckets are cut into units."""
    items = problem.items.constant
    buckets = ceil_div(problem.destinations.constant, 1 << bits)
    if SMALL.takes(items, buckets):
        return SMALL if buckets <= _MOST_BUCKETS else None
    fits = buckets <= _MANY_BUCKETS and LARGE.bytes(bits, 0) + _STATIC_BYTES <= shared_bytes
    sums = _sectors_of_sums(1 << bits, _sectors_of_sum(problem))
    return LARGE if fits and sums >= _WORTH_LISTING and LARGE.takes(items, buckets) else None


def _sectors_of_sums(places: Any, sectors: Any) -> Any:
    """Sectors of sums for each update where buckets of so many places are cut into units.

    Parameters
    ----------
    sectors : number or expression
        Those of the sum of a place.
    """
    return smaller(places / _UNIT_ITEMS[0], 1.0) * sectors


def _sectors_of_sum(problem: ScatterProblem) -> int:
    return ceil_div(_bytes_of_sum(problem), SECTOR_BYTES)


def _bytes_of_sum(problem: ScatterProblem) -> int:
    return max(problem.width.constant * accumulate_bytes(problem.data_dtype), 1)


def _bucket_bits(problem: ScatterProblem, shared_bytes: int) -> int:
    """The logarithm of the number of places in a bucket."""
    places, items = problem.destinations.constant, problem.items.constant

    def with_updates(fill: int) -> int:
        most = min(
            places * fill // max(items, 1),
            places // _ENOUGH_BUCKETS,
            _SUM_BYTES // _bytes_of_sum(problem),
            1 << _MOST_BITS,
        )
        return max(most, 1).bit_length() - 1

    each = [with_updates(fill) for fill in _FILLS]
    return next((bits for bits in each if _room(problem, bits, shared_bytes)), each[0])


def _tile_bytes(per_thread: int, buckets: int, carried: int = 0) -> int:
    """Bytes of shared memory of a block that orders a tile, with so many carried for each item."""
    return per_thread * _TILE_THREADS * (4 + carried) + (buckets + 1) * 4


class _Plan:
    """The numbers of buckets and tiles, and the layout of the workspace.

    Where sizes are known at run time only, the number of places of a bucket is so, too, and a block
    has room for as many as there may be.

    Attributes
    ----------
    bits : int or expression
        The logarithm of the number of places of a bucket.
    most_bits, most_buckets : int
        The most that this may be, and the most buckets.
    forms : list of (condition, int)
        What decides at run time how many updates a thread of a tile has, and that number.
    per_thread : int
        This number where no condition holds.
    """

    def __init__(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> None:
        items, places = sizes.items, sizes.destinations
        self._places = places
        if problem.is_static:
            self.bits = self.most_bits = config["bucket_bits"]
            self.room = _room(problem, self.bits, shared_memory_limit(target)) or SMALL
            self.most_buckets = self.buckets
            self.forms, self.per_thread = [], config["per_thread"]
        else:
            self.bits, self.most_bits = _bits_at_run_time(problem, sizes), _MOST_BITS
            self.room, self.most_buckets = SMALL, _MOST_BUCKETS
            self.forms = [(items >= least, number) for least, number in _PER_THREAD_OF_MANY]
            self.per_thread = _PER_THREAD_OF_FEW
        self.tile_items: Any = self.per_thread * _TILE_THREADS
        for many, number in reversed(self.forms):
            self.tile_items = _if(many, number * _TILE_THREADS, self.tile_items)
        self.tiles = at_least(ceil_div(items, self.tile_items), 1)
        large = items // (self.room.most + 1)
        long_lists = items // (LONG_LIST + 1)
        self.unit_items = _unit_items(problem, sizes)
        self.units = items // self.unit_items + large
        # An upper bound: each update accounts for a share of a slot, in a large bucket or a long
        # list.
        in_large = items * power_of_two(self.bits) // (self.room.most + 1)
        slots = minimum(places, maximum(in_large, long_lists))
        runs = self.buckets if problem.is_static else minimum(places, _MOST_BUCKETS)
        layout = self.layout = sorting.Layout()
        layout.add("cursors", 4 * 8)
        layout.add("runs", (runs + 1) * self.tiles * 2)
        layout.add("entries", items * 4)
        layout.add("carried", items * MOST_BYTES if problem.fused else 0)
        layout.add("places", places * 8)
        layout.add("list", items * (MOST_BYTES if problem.fused else 4))
        layout.add("parts", (long_lists + items // LEAST_CHUNK) * 16)
        layout.add("units", self.units * 16)
        layout.add("sums", slots * sizes.width * accumulate_bytes(problem.data_dtype))

    @property
    def buckets(self) -> Any:
        """The number of buckets."""
        return at_least(ceil_div(self._places, power_of_two(self.bits)), 1)

    def declarations(self, carries: bool) -> tuple[str, sorting.Arguments]:
        """C++ declarations of ``buckets`` and of the ``sums`` of slots, and their arguments.

        Parameters
        ----------
        carries : bool
            Whether the lists carry what is the same for all elements of a row, and do not only say
            which update it is.
        """
        entry = "P::Updates::Carried" if carries else "uint32"
        known = self.bits if isinstance(self.bits, int) else -1
        numbers = (self.tiles, self.tile_items, self.unit_items, self.bits)
        kind = f"Buckets<{entry}, {known}>"
        text, arguments = declare_lists(self.layout, kind, "buckets", _FIELDS, *numbers)
        return f"  using Entry = {entry};\n{text}", arguments


def _if(condition: Any, number: int, otherwise: Any) -> Any:
    if isinstance(condition, bool):
        return number if condition else otherwise
    sides = [number, otherwise]
    sides = [tirx.IntImm("int64", each) if isinstance(each, int) else each for each in sides]
    return tirx.Select(condition, *sides)


def _unit_items(problem: ScatterProblem, sizes: Sizes) -> int:
    """The updates of a unit; the most where sizes are known at run time only."""
    if not problem.is_static:
        return _UNIT_ITEMS[0]
    # Groups of fewer lanes share a unit among more of them.
    lanes, parts = shares_of_rows(problem, sizes)
    work = sizes.items * parts * WARP // lanes
    return next((unit for unit in _UNIT_ITEMS if unit * _ENOUGH_UNITS <= work), _UNIT_ITEMS[-1])


def _bits_at_run_time(problem: ScatterProblem, sizes: Sizes) -> Any:
    """As :func:`_bucket_bits`, an expression; there are no more than the most buckets."""
    sums = real(sizes.width) * float(accumulate_bytes(problem.data_dtype))
    few = smaller(_few_places(real(sizes.destinations), real(sizes.items), sums), _MOST_OF_BUCKET)
    # The logarithm of the second, rounded down, is that of the number behind it, rounded up. It is
    # odd, so that an error of the logarithm changes nothing. It may change that of the first.
    most = larger(few, real(2 * ceil_div(sizes.destinations, _MOST_BUCKETS) - 1))
    bits = logarithm(larger(most, 1.0)) / log(2)
    return int(bits) if isinstance(bits, float) else tirx.Cast("int64", bits)


def _few_places(destinations: Any, items: Any, bytes_of_sum: Any) -> Any:
    """So many places of a bucket that a block can order it, at most, of sizes that are not whole.

    TVM moves a division of integers in front of what asks whether it divides by zero.
    """
    filled = float(_FILLS[0]) * destinations / larger(items, 1.0)
    few = smaller(destinations / float(_ENOUGH_BUCKETS), filled)
    return smaller(few, float(_SUM_BYTES) / larger(bytes_of_sum, 1.0))


def _list_updates(operands: Operands, plan: _Plan, carried: int) -> None:
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
            static_bytes=_STATIC_BYTES,
            **more,
        )

    count, further = as_number("bucket_count", plan.buckets)

    def order_tiles(per_thread: int) -> None:
        ahead = carries and carried * per_thread <= _AHEAD_BYTES
        step(
            f"  order_tile<P, {per_thread}, {str(ahead).lower()}>(buckets, indices, updates, "
            f"sizes, {count}, shared);",
            plan.tiles,
            _TILE_THREADS,
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
    together = _BUCKETS_TOGETHER * (room.bytes(plan.most_bits, carried) + _STATIC_BYTES)
    held = carried if together <= shared_memory_limit(operands.target) else 0
    step(
        f"  list_bucket<P, {plan.most_bits}, {room.threads}, {room.most}, {str(held > 0).lower()}>("
        f"buckets, sums, sizes, {chunk}, shared);",
        plan.buckets,
        room.threads,
        room.bytes(plan.most_bits, held),
        further,
    )


def _reduce(operands: Operands, plan: _Plan, threads: int, carries: bool) -> None:
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
