"""The numbers of buckets and tiles, and where the workspace has their lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from tvm_scatter.emit.weighted_rows import WARP
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div, power_of_two
from tvm_scatter.strategies.cuda.codegen.carried import MOST_BYTES
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from . import sorting
from .bucket_sizes import MOST_BITS, MOST_BUCKETS, SMALL, UNIT_ITEMS, bits_at_run_time, room_of
from .listed_rows import LEAST_CHUNK, LONG_LIST, declare_lists, shares_of_rows

TILE_THREADS = device_constant("bucketed", "kTileThreads")
#: Where sizes are known at run time only: from how many updates on a thread has so many, and how
#: many it has of fewer. Of five million 8 take 1.10 of the time in all, of a million as long.
_PER_THREAD_OF_MANY, _PER_THREAD_OF_FEW = ((1_500_000, 16), (300_000, 8)), 2
_ENOUGH_UNITS = 1024
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


class BucketPlan:
    """The numbers of buckets and tiles, and the layout of the workspace.

    Where sizes are known at run time only, the number of places of a bucket is so, too, and a block
    has room for as many as there may be.

    Parameters
    ----------
    config : mapping
        The knobs of ``bucketed``.

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

    def __init__(
        self, problem: ScatterProblem, sizes: Sizes, config: Mapping[str, int], target: Any
    ) -> None:
        items, places = sizes.items, sizes.destinations
        self._places = places
        if problem.is_static:
            self.bits = self.most_bits = config["bucket_bits"]
            self.room = room_of(problem, self.bits, shared_memory_limit(target)) or SMALL
            self.most_buckets = self.buckets
            self.forms, self.per_thread = [], config["per_thread"]
        else:
            self.bits, self.most_bits = bits_at_run_time(problem, sizes), MOST_BITS
            self.room, self.most_buckets = SMALL, MOST_BUCKETS
            self.forms = [(items >= least, number) for least, number in _PER_THREAD_OF_MANY]
            self.per_thread = _PER_THREAD_OF_FEW
        self.tile_items: Any = self.per_thread * TILE_THREADS
        for many, number in reversed(self.forms):
            self.tile_items = _if(many, number * TILE_THREADS, self.tile_items)
        self.tiles = at_least(ceil_div(items, self.tile_items), 1)
        large = items // (self.room.most + 1)
        long_lists = items // (LONG_LIST + 1)
        self.unit_items = _unit_items(problem, sizes)
        self.units = items // self.unit_items + large
        # An upper bound: each update accounts for a share of a slot, in a large bucket or a long
        # list.
        in_large = items * power_of_two(self.bits) // (self.room.most + 1)
        slots = at_most(places, at_least(in_large, long_lists))
        runs = self.buckets if problem.is_static else at_least(at_most(places, MOST_BUCKETS), 1)
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
        return UNIT_ITEMS[0]
    # Groups of fewer lanes share a unit among more of them.
    lanes, parts = shares_of_rows(problem, sizes)
    work = sizes.items * parts * WARP // lanes
    return next((unit for unit in UNIT_ITEMS if unit * _ENOUGH_UNITS <= work), UNIT_ITEMS[-1])
