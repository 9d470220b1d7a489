"""Launches that order updates by destination through buckets of neighbouring places."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div, power_of_two, round_up
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger
from tvm_scatter.selection.work import Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from . import sorting
from .order_forms import OrderedLists, OrderForm, all_of

_THREADS = device_constant("bucket_order", "kBucketOrderThreads")
_WARPS = _THREADS // 32
_MOST_PLACES = device_constant("bucket_order", "kBucketOrderPlaces")
_MOST_BITS = _MOST_PLACES.bit_length() - 1
#: The same where there would be too many buckets, if a block can order each, and it has some
#: entries. Two to 20 million updates of millions of places take 0.5 to 0.7 of a radix sort's time
#: so. If buckets are cut, 124 million take 6.2 ms for 6.6, and twice that where more is moved.
_MANY_BITS = 11
#: The most counters of a warp that orders a tile, so many that a multiprocessor has room for two
#: blocks, and so few that tiles have long runs of each bucket.
_MOST_BUCKETS, _SOME_BUCKETS, _FEW_BUCKETS = 4096, 2048, 1024
#: So many buckets let all multiprocessors have work, if each has some entries.
_ENOUGH_BUCKETS, _SOME_ENTRIES = 256, 512
#: A radix sort takes one pass for so many places. Buckets are no better if all are cut into units:
#: 5 million updates of one place 77 us and 92, 3 million of ten 53 and 56.
_ONE_PASS = 511
#: The most entries of a bucket for each thread of a block; fewer registers for fewer.
_ROOMS = (8, 16)
#: The most entries of a bucket that a block orders; others are cut into units.
_MOST_ENTRIES = _ROOMS[-1] * _THREADS
_PER_THREAD = (16, 8, 4, 2, 1)
_ENOUGH_TILES = 128
#: The entries of a unit for each thread of a block: so many that there are enough units if all
#: updates are in some.
_UNITS = (8, 4, 2)
_ENOUGH_UNITS = 256
#: The updates of a thread where the sizes are symbolic, and those of a unit.
_SYMBOLIC_PER_THREAD, _SYMBOLIC_UNIT = 8, 4
#: The most blocks that look for units, whose number only the device knows.
_UNIT_BLOCKS = 512
_UNIT_BYTES = 6 * 4
#: Bits of a word in which an item and a place in a bucket are put, if they are few enough.
_WORD_BITS = 32
#: What an update takes, as bytes at copy bandwidth, though it is shared memory and ranks that wait
#: for each other: 300 000 to 10 million updates take 17 to 177 us on an H200.
_LAUNCHES, _BYTES_OF_ITEM = 4, 60
#: Accesses to say, and to ask, where the run of a tile in a bucket begins: 346 us of 14 million
#: updates of 717 000 places, which have 2801 buckets.
_SECTORS_OF_RUN = 1.25
#: Cycles to cut buckets into units, and of a multiprocessor for each update then: 12 us more of 300
#: 000 or a million that are skewed, 29 of five million, and 858 for 40 million.
_CUT_CYCLES, _CUT_ITEM_CYCLES = 10000.0, 1.3
#: Bytes of static shared memory, at most.
_STATIC_BYTES = 256


class _Plan:
    """The numbers of buckets and tiles, and the layout of the workspace.

    ``takes`` is whether buckets serve the sizes where a block can have so much shared memory.
    """

    def __init__(self, problem: ScatterProblem, sizes: Sizes, shared_bytes: int) -> None:
        self.static = problem.is_static
        items = sizes.items
        fits = (n for n in _PER_THREAD if self.static and n * _THREADS * _ENOUGH_TILES <= items)
        self.per_thread = next(fits, 1 if self.static else _SYMBOLIC_PER_THREAD)
        self.tile_items = self.per_thread * _THREADS
        self.tiles = at_least(ceil_div(items, self.tile_items), 1)
        if self.static:
            room = shared_bytes - _STATIC_BYTES - _tile_bytes(self.per_thread, 0)
            most = min(_MOST_BUCKETS, room // (2 * _WARPS) - 1)
            self.bits = _bits(items, sizes.destinations, most)
        else:
            self.bits = _bits_of_whole_buckets(items, sizes.destinations)
        self.buckets = ceil_div(sizes.destinations, power_of_two(self.bits))
        rooms = (n for n in _ROOMS[:-1] if self.static and items <= self.buckets * _fill(n))
        self.room = next(rooms, _ROOMS[-1])
        self.most = self.room * _THREADS
        fits = (n for n in _UNITS if self.static and n * _THREADS * _ENOUGH_UNITS <= items)
        self.unit = next(fits, _UNITS[-1] if self.static else _SYMBOLIC_UNIT)
        # The last unit of a bucket may have fewer entries.
        self.units = items // (self.unit * _THREADS) + items // self.most + 1
        # An item and a place in a bucket share a word.
        words = items * power_of_two(self.bits)
        self.word = "uint64" if self.static and words > 1 << _WORD_BITS else "uint32"
        if self.static:
            one_pass = sizes.destinations <= _ONE_PASS and not _are_whole(items, self.buckets)
            self.takes = self.buckets <= most and not one_pass
        else:
            self.takes = all_of(
                words <= tirx.IntImm("int64", 1 << _WORD_BITS),
                self.buckets <= _SOME_BUCKETS,
                _are_whole(items, self.buckets),
            )
        most_buckets = self.buckets if self.static else _SOME_BUCKETS
        # One more is for updates that are dropped.
        self.bucket_bits = most_buckets.bit_length()
        self.place_bits = self.bits if self.static else _MOST_BITS
        most_places = 1 << self.place_bits
        self.tile_bytes = _tile_bytes(self.per_thread, most_buckets)
        self.room_bytes = _room_bytes(self.most, most_places, self.word)
        self.unit_bytes = _room_bytes(self.unit * _THREADS, most_places, self.word)
        if max(self.tile_bytes, self.room_bytes) + _STATIC_BYTES > shared_bytes:
            self.takes = False
        layout = self.layout = sorting.Layout()
        layout.add("taken", 4)
        layout.add("begins", (most_buckets + 2) * self.tiles * 2)
        layout.add("entries", items * 4)
        layout.add("units", self.units * _UNIT_BYTES)
        layout.add("counts", self.units * most_places * 4)
        layout.add("together", self.units * most_places * 4)

    def declarations(self) -> tuple[str, sorting.Arguments]:
        """C++ declarations of ``order``, ``begins`` and ``entries``, and their arguments."""
        layout = self.layout
        fields = {
            "taken": "uint32",
            "units": "OrderUnit",
            "counts": "uint32",
            "together": "uint32",
            "begins": "unsigned short",
            "entries": "uint32",
        }
        text = "".join(layout.pointer(name, kind) for name, kind in fields.items())
        text += (
            "  const OrderBuckets order{taken, units, counts, together, {begins, entries, "
            "uint32(tiles), uint32(tile_items)},\n      uint32(buckets), int(bits)};\n"
        )
        numbers = ("tiles", "tile_items", "buckets", "bits")
        arguments = {name: ("long long", getattr(self, name)) for name in numbers}
        return text, {**layout.arguments(*fields), **arguments}


def _fill(room: int) -> int:
    """The entries of a bucket on average. Buckets differ, so an eighth of a block is left empty."""
    return room * _THREADS * 7 // 8


def _bits(items: int, places: int, most: int) -> int:
    """The logarithm of the number of places in a bucket, if the sizes are known.

    A block orders a bucket at once, if it takes few enough buckets for that, of which a tile has
    room for so many. Otherwise all are cut into units, and there are no more than keep all
    multiprocessors busy.
    """
    whole = _bits_of_whole_buckets(items, places)
    buckets = ceil_div(places, 1 << whole)
    fits = _are_whole(items, buckets) and buckets <= most
    if fits and buckets <= _SOME_BUCKETS:
        return whole
    cut = _most_bits(places, _ENOUGH_BUCKETS)
    if cut == _MOST_BITS and ceil_div(places, 1 << cut) > most:
        return _bits_of_many_places(items, places, most) or cut
    return whole if fits and ceil_div(places, 1 << cut) > _FEW_BUCKETS else cut


def _bits_of_many_places(items: int, places: int, most: int) -> int | None:
    """The same for more places than threads, where that gives whole buckets with some entries."""
    for bits in range(_MOST_BITS + 1, _MANY_BITS + 1):
        buckets = ceil_div(places, 1 << bits)
        if buckets <= most:
            some = items >= _SOME_ENTRIES * buckets
            return bits if some and _are_whole(items, buckets) else None
    return None


def _bits_of_whole_buckets(items: Any, places: Any) -> Any:
    """The same for buckets that a block can order: there are enough of them, if possible."""
    busy = at_most(items // _SOME_ENTRIES, _ENOUGH_BUCKETS)
    more = at_least(ceil_div(items, _fill(_ROOMS[-1])) - _ENOUGH_BUCKETS, 0)
    return _most_bits(places, at_least(busy + more, 1))


def _are_whole(items: Any, buckets: Any) -> Any:
    """Whether a block can order a bucket of the usual number of entries."""
    return items <= buckets * _fill(_ROOMS[-1])


def _most_bits(places: Any, buckets: Any) -> Any:
    """The logarithm of the most places in a bucket, as long as there are so many buckets."""
    enough = [ceil_div(places, 1 << bits) >= buckets for bits in range(1, _MOST_BITS + 1)]
    if all(isinstance(each, bool) for each in enough):
        return sum(enough)
    result: Any = tirx.IntImm("int64", 0)
    for condition in enough:
        result = result + tirx.Cast("int64", condition)
    return result


def _tile_bytes(per_thread: int, buckets: int) -> int:
    """Bytes of shared memory of a block that orders a tile."""
    return per_thread * _THREADS * 4 + _WARPS * round_up(buckets + 1, 2) * 2


def _room_bytes(entries: int, places: int, word: str) -> int:
    """Bytes of shared memory of a block that orders a bucket: ``OrderRoom``, and counters."""
    words = entries * (8 if word == "uint64" else 4)
    held = 8 * (_THREADS + max(places, _MOST_PLACES))
    return words + held + _WARPS * round_up(places, 2) * 2


def _takes(problem: ScatterProblem, sizes: Sizes, target: Any) -> Any:
    return _Plan(problem, sizes, shared_memory_limit(target)).takes


def _workspace(problem: ScatterProblem, sizes: Sizes, target: Any) -> Any:
    return _Plan(problem, sizes, shared_memory_limit(target)).layout.total


def _emit(operands: Operands, lists: OrderedLists) -> None:
    plan = _Plan(operands.problem, operands.sizes, shared_memory_limit(operands.target))
    text, arguments = plan.declarations()
    text += lists.declarations
    arguments |= lists.arguments
    moves = "MovesNumbers moves"
    if lists.carried is not None:
        moves = f"MovesCarried<P::Updates> moves{{updates, {', '.join(lists.carried)}}}"
    text += f"  const {moves};\n  (void)moves;\n"
    carries = lists.carried is not None

    def step(body: str, blocks: Any, shared: int, resolves_every_index: bool = False) -> None:
        launch(
            operands,
            ("bucket_order",),
            text + body,
            blocks,
            _THREADS,
            arguments,
            shared,
            resolves_every_index=resolves_every_index,
            narrow=not carries,
            owns=carries,
            overlaps=True,
            static_bytes=_STATIC_BYTES,
        )

    step(
        f"  order_tile_by_bucket<P, {plan.per_thread}, {plan.bucket_bits}>(order, begins, entries, "
        "indices, sizes, moves, shared);",
        plan.tiles,
        plan.tile_bytes,
        resolves_every_index=True,
    )
    results = f"{lists.permutation}, {lists.offsets}, order, sizes, moves, shared"
    step(
        f"  order_bucket<P, {plan.room}, {plan.place_bits}, {plan.word}, {plan.unit}>({results});",
        plan.buckets + 1,
        plan.room_bytes,
    )
    if plan.static and operands.sizes.items <= plan.most:
        return
    blocks = at_most(plan.units, _UNIT_BLOCKS)
    unit = f"{plan.unit}, {plan.place_bits}, {plan.word}"
    step(f"  count_units<{unit}>(order, shared);", blocks, plan.unit_bytes)
    step(f"  order_units<P, {unit}>({results});", blocks, plan.unit_bytes)


def _time(work: Work) -> tuple[Any, Any] | None:
    plan = _Plan(work.problem, Sizes.of(work.problem), work.machine.shared_bytes)
    if not plan.takes:
        return None
    cycles = _CUT_CYCLES + _CUT_ITEM_CYCLES * work.items / work.machine.multiprocessors
    largest = larger(work.hottest, work.items / max(plan.buckets, 1))
    cut = choose(is_at_most(largest, _MOST_ENTRIES), 0.0, work.cycles(cycles))
    runs = work.sectors(_SECTORS_OF_RUN * plan.tiles * plan.buckets)
    return _LAUNCHES, work.streams(_BYTES_OF_ITEM * work.items) + runs + cut


FORM = OrderForm("buckets", _takes, _workspace, _emit, _time, carries=True)
