"""Tiled: orders updates by destination within tiles, and reduces each bucket in shared memory."""

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

from .machines import multiprocessors
from .steps import shared_contention, sorting

_MOST_BUCKETS = device_constant("partition", "kMostBuckets")
_HOT_PLACES = device_constant("partition", "slots")
_WORDS_EACH = device_constant("tiled", "words_each")
#: Enough buckets and tiles for all multiprocessors.
_ENOUGH_BUCKETS, _ENOUGH_TILES = 128, 256
#: Places of a bucket: enough for runs of some length, and few enough for several blocks to fit.
_BITS = (14, 13, 12, 11, 10, 9, 8)
_PER_THREAD = (16, 8, 4)
_TILE_THREADS = (512, 1024)
#: Bytes of a sector. Where the values of a run take no more, larger tiles gain more than they cost.
_SHORT_RUN_BYTES = 32
_THREADS = (512, 1024)
#: The fewest updates that a block reduces, and the multiple of the mean from which on several
#: blocks share a bucket.
_LEAST_UNIT = 1 << 15
_UNEVEN = 2
#: Cycles for which the units of a bucket wait for each other, when they write their sums.
_UNIT_CYCLES = 1300.0
#: Bytes of the list of units, and of a unit in it.
_LIST_BYTES, _UNIT_BYTES = 28, 16
#: What blocks share besides, each number aligned.
_FEW_BYTES = 64
#: The most updates: where they stand takes 32 bits, and so does the end of the last tile.
_LIMIT = 1 << 31
_UNCUT = (1 << 32) - 1


class Tiled(Implementation):
    """Two passes over single elements: tiles are ordered, then buckets gather and reduce runs."""

    name = "tiled"
    accumulates_wide = True
    fuses = True
    summary = "many single elements scattered over a large output, plain updates too"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.reduces.is_store and not (problem.reduces.merges and problem.include_self):
            return "it reduces into the data only"
        if not problem.width.is_one:
            return "it moves single elements, not rows"
        if not problem.is_static:
            return "the sizes must be known"
        if problem.items.constant >= _LIMIT:
            return f"it takes fewer than {_LIMIT} updates, not {problem.items}"
        knobs = self.knobs(problem, target)
        if not knobs["bucket_bits"]:
            return f"{problem.destinations} places do not fit {_MOST_BUCKETS} buckets"
        if not knobs["per_thread"]:
            return "a block has too little shared memory to order its updates in"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        places, items = problem.destinations.constant, problem.items.constant
        limit = shared_memory_limit(target)
        possible = [
            bits
            for bits in _BITS
            if ceil_div(places, 1 << bits) <= _MOST_BUCKETS
            and _bucket_bytes(problem, bits) + _room_bytes(max(_THREADS)) <= limit
        ]
        enough = [bits for bits in possible if places >> bits >= _ENOUGH_BUCKETS] or possible[-1:]
        largest = max(_TILE_THREADS)
        fitting = [n for n in _PER_THREAD if _tile_bytes(problem, n * largest) <= limit]
        least = _TILE_THREADS[0] * _ENOUGH_TILES
        filling = [n for n in fitting if n * least <= items] or fitting[-1:]
        larger_tiles = bool(enough and filling) and _gains_by_larger_tiles(
            problem, enough[0], filling[0]
        )
        alone = bool(enough) and places >> enough[0] <= multiprocessors(target)
        return {
            "bucket_bits": tuple(dict.fromkeys((*enough[:1], *possible))),
            "per_thread": tuple(dict.fromkeys((*filling[:1], *fitting))),
            "tile_threads": _TILE_THREADS[:: -1 if larger_tiles else 1],
            "threads": _THREADS,
            # Of blocks that are alone on a multiprocessor, more wait together.
            "in_flight": (8, 4, 2) if alone else (4, 8, 2),
        }

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _Plan(problem, sizes, config).layout.total

    def cost(self, work: Work, config: Config) -> Terms:
        places = float(1 << config["bucket_bits"])
        buckets = larger(work.destinations / places, 1.0)
        tiles = larger(work.items / (config["tile_threads"] * config["per_thread"]), 1.0)
        ordered = work.items * (2 + work.element)
        # Computed updates are made of two operands at least.
        parts = work.update_bytes if work.problem.fused else 0.0
        each = work.items / buckets
        # Of each bucket that has a hot place, no more than a unit waits for it.
        together = larger(work.lines / buckets, 1.0)
        if work.problem.index_slice:
            # Where rows are hot, a bucket has those of many columns.
            together = larger(together, smaller(work.slice, places))
        hottest = work.hottest * together
        unit = larger(_UNEVEN * each, float(_LEAST_UNIT))
        in_a_block = shared_contention.of_lanes(work, smaller(hottest, unit))
        tried = shared_contention.instructions(work) * shared_contention.repeats(
            work, float(config["threads"]), smaller(places, work.destinations)
        )
        hot_turns = work.whole_turns(smaller(work.lines, buckets))
        return {
            "launches": work.launches(2),
            "tiles": work.streams(work.operand_bytes + parts + ordered),
            "buckets": work.streams(ordered + 2 * work.data_bytes),
            # An entry of the table, and sectors of places and values that runs share.
            "runs": work.sectors(3 * tiles * buckets),
            "updates": work.cycles(work.whole_turns(buckets) * each * tried),
            "hot updates": work.cycles(
                hot_turns * in_a_block + _UNIT_CYCLES * larger(hottest / unit - 1.0, 0.0)
            ),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        plan = _Plan(operands.problem, operands.sizes, config)
        text, arguments = plan.declarations()
        bits, threads = plan.bits, config["threads"]
        form = f"P, {bits}, {threads}, {config['in_flight']}"

        def step(body: str, blocks: Any, threads: int, shared_bytes: int, **more: Any) -> None:
            launch(
                operands, ("tiled",), text + body, blocks, threads, arguments, shared_bytes, **more
            )

        step(
            f"  order_values<P, {bits}, {plan.tile_threads}, {plan.per_thread}>"
            "(tiles, updates, indices, sizes, shared);",
            plan.tiles,
            plan.tile_threads,
            _tile_bytes(operands.problem, plan.tile_items, plan.buckets),
            resolves_every_index=True,
        )
        source = "out" if operands.data is None else "data"
        step(
            f"  reduce_bucket<{form}>(out, {source}, tiles, sizes, shared);",
            plan.buckets,
            threads,
            _bucket_bytes(operands.problem, bits),
            static_bytes=_room_bytes(threads),
        )


def _gains_by_larger_tiles(problem: ScatterProblem, bits: int, per_thread: int) -> bool:
    """Whether smaller tiles have runs below a sector, and there are enough of the larger ones."""
    runs = problem.destinations.constant / (1 << bits)
    run_bytes = _TILE_THREADS[0] * per_thread * item_bytes(problem.data_dtype) / max(runs, 1.0)
    enough = _TILE_THREADS[1] * per_thread * _ENOUGH_TILES
    return run_bytes <= _SHORT_RUN_BYTES and problem.items.constant >= enough


def _room_bytes(threads: int) -> int:
    """Bytes of static shared memory of a block that gathers, with a sum for each warp of a scan."""
    return threads * (2 * _WORDS_EACH + 1) * 4 + threads // 32 * 4 + _FEW_BYTES


def _bucket_bytes(problem: ScatterProblem, bits: int) -> int:
    """Bytes of shared memory of a bucket, and of each lane's sums of hot places."""
    element = accumulate_bytes(problem.data_dtype)
    hot = 0 if problem.reduces.is_store else _HOT_PLACES * (32 * element + 4)
    return (element << bits) + hot


def _tile_bytes(problem: ScatterProblem, items: int, buckets: int = _MOST_BUCKETS) -> int:
    """Bytes of shared memory of a block that orders a tile."""
    return items * (2 + item_bytes(problem.data_dtype)) + (buckets + 4) // 4 * 16


class _Plan:
    """The numbers of buckets, tiles and units, and the layout of the workspace."""

    def __init__(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> None:
        items = sizes.items
        self.bits = config["bucket_bits"]
        self.buckets = max(ceil_div(sizes.destinations, 1 << self.bits), 1)
        self.tile_threads, self.per_thread = config["tile_threads"], config["per_thread"]
        self.tile_items = self.tile_threads * self.per_thread
        self.tiles = max(ceil_div(items, self.tile_items), 1)
        self.unit_items = max(_LEAST_UNIT, _UNEVEN * ceil_div(items, self.buckets))
        # Each bucket that is cut has more than one unit of updates.
        large = 0 if problem.unique else items // (self.unit_items + 1)
        self.units = large and items // self.unit_items + large
        if not self.units:
            # Then no bucket is cut, not even where a promise of unique indices is broken.
            self.unit_items = _UNCUT
        self.element = item_bytes(problem.data_dtype)
        layout = self.layout = sorting.Layout()
        layout.add("list", _LIST_BYTES)
        layout.add("runs", self.tiles * (self.buckets + 1) * 2)
        layout.add("places", self.tiles * self.tile_items * 2)
        layout.add("values", self.tiles * self.tile_items * self.element)
        layout.add("units", self.units * _UNIT_BYTES)
        wide = accumulate_bytes(problem.data_dtype)
        if wide == self.element or problem.reduces.is_store:
            large = 0
        layout.add("sums", large * (wide << self.bits))
        layout.add("unfinished", large * 4)

    def declarations(self) -> tuple[str, sorting.Arguments]:
        """A C++ declaration of ``tiles``, and its arguments."""
        fields = {
            "list": "UnitList",
            "runs": "unsigned short",
            "places": "unsigned short",
            "values": "Data",
            "units": "TiledUnit",
            "sums": "Accumulate<Data>",
            "unfinished": "uint32",
        }
        text = "".join(self.layout.pointer(name, kind) for name, kind in fields.items())
        numbers = (self.tiles, self.tile_items, self.buckets, self.unit_items)
        text += f"  const Tiles<Data> tiles{{{', '.join(fields)}, "
        text += ", ".join(f"{number}u" for number in numbers) + "};\n"
        return text, self.layout.arguments(*fields)
