"""How many places a bucket has, and whether a block can list its updates.

Sizes are numbers, or expressions if they are known at run time only.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any, NamedTuple

from tvm import tirx

from tvm_scatter.emit.weighted_rows import WARP
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import is_at_most, larger, logarithm, real, smaller
from tvm_scatter.selection.work import SECTOR_BYTES, Work
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes

#: The most buckets, whose counters are in shared memory: more if each has many updates, because the
#: run of a tile in a bucket becomes short.
MOST_BUCKETS, _MANY_BUCKETS = 2048, 4096
#: The same of a bucket's places.
MOST_BITS = 11
#: The fewest buckets, so that all multiprocessors have work.
_ENOUGH_BUCKETS = 256
#: The most places that are taken where sizes are known at run time only.
MOST_PLACES = MOST_BUCKETS << MOST_BITS
_MOST_OF_BUCKET = float(1 << MOST_BITS)
#: Of a number the power of two that is not greater, in the mean over all numbers.
_ROUNDED_DOWN = 0.72
#: Bytes of the sums of one bucket, which one block initialises.
_SUM_BYTES = 1 << 18
#: Bytes of static shared memory of a block that orders a bucket, at most.
STATIC_BYTES = 256
#: Sectors of sums for each update from which on buckets are listed in large rooms: with 0.125 they
#: take 1.03 to 1.25 of the time in which they are cut into units, with 0.5 0.5 to 0.93.
_WORTH_LISTING = 0.3
#: Updates of a unit, into which larger buckets are cut: fewer if there is little work to share.
UNIT_ITEMS = (1024, 512, 256)


class Room(NamedTuple):
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


SMALL, LARGE = Room(256, 4096), Room(512, 8192)
#: The most updates that a bucket should have, in a small room and then in a large one.
_FILLS = (3072, 3840, 7680)


class ExpectedBuckets(NamedTuple):
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
    def of(work: Work, config: Mapping[str, int]) -> ExpectedBuckets:
        """The buckets of some work."""
        problem = work.problem
        if not problem.is_static:
            return ExpectedBuckets._at_run_time(work)
        bits = config["bucket_bits"]
        places, room = float(1 << bits), room_of(problem, bits, work.machine.shared_bytes)
        buckets = larger(work.destinations / places, 1.0)
        most = (room or SMALL).most
        return ExpectedBuckets(bits, places, buckets, most, bool(room), _sectors_of_sum(problem))

    @staticmethod
    def _at_run_time(work: Work) -> ExpectedBuckets:
        bytes_of_sum = work.width * accumulate_bytes(work.problem.data_dtype)
        few = _few_places(work.destinations, work.items, bytes_of_sum)
        places = larger(larger(_ROUNDED_DOWN * few, work.destinations / MOST_BUCKETS), 1.0)
        buckets = larger(work.destinations / places, 1.0)
        listed = is_at_most(work.items, SMALL.share * buckets)
        sectors = larger(bytes_of_sum / SECTOR_BYTES, 1.0)
        return ExpectedBuckets(
            logarithm(places) / log(2), places, buckets, SMALL.most, listed, sectors
        )


def room_of(problem: ScatterProblem, bits: int, shared_bytes: int) -> Room | None:
    """The room of a bucket of so many places; none if such buckets are cut into units."""
    items = problem.items.constant
    buckets = ceil_div(problem.destinations.constant, 1 << bits)
    if SMALL.takes(items, buckets):
        return SMALL if buckets <= MOST_BUCKETS else None
    fits = buckets <= _MANY_BUCKETS and LARGE.bytes(bits, 0) + STATIC_BYTES <= shared_bytes
    sums = sectors_of_sums(1 << bits, _sectors_of_sum(problem))
    return LARGE if fits and sums >= _WORTH_LISTING and LARGE.takes(items, buckets) else None


def sectors_of_sums(places: Any, sectors: Any) -> Any:
    """Sectors of sums for each update where buckets of so many places are cut into units.

    Parameters
    ----------
    sectors : number or expression
        Those of the sum of a place.
    """
    return smaller(places / UNIT_ITEMS[0], 1.0) * sectors


def _sectors_of_sum(problem: ScatterProblem) -> int:
    return ceil_div(_bytes_of_sum(problem), SECTOR_BYTES)


def _bytes_of_sum(problem: ScatterProblem) -> int:
    return max(problem.width.constant * accumulate_bytes(problem.data_dtype), 1)


def bucket_bits(problem: ScatterProblem, shared_bytes: int) -> int:
    """The logarithm of the number of places in a bucket."""
    places, items = problem.destinations.constant, problem.items.constant

    def with_updates(fill: int) -> int:
        most = min(
            places * fill // max(items, 1),
            places // _ENOUGH_BUCKETS,
            _SUM_BYTES // _bytes_of_sum(problem),
            1 << MOST_BITS,
        )
        return max(most, 1).bit_length() - 1

    each = [with_updates(fill) for fill in _FILLS]
    return next((bits for bits in each if room_of(problem, bits, shared_bytes)), each[0])


def bits_at_run_time(problem: ScatterProblem, sizes: Sizes) -> Any:
    """As :func:`bucket_bits`, an expression; there are no more than the most buckets."""
    sums = real(sizes.width) * float(accumulate_bytes(problem.data_dtype))
    few = smaller(_few_places(real(sizes.destinations), real(sizes.items), sums), _MOST_OF_BUCKET)
    # The logarithm of the second, rounded down, is that of the number behind it, rounded up. It is
    # odd, so that an error of the logarithm changes nothing. It may change that of the first.
    most = larger(few, real(2 * ceil_div(sizes.destinations, MOST_BUCKETS) - 1))
    bits = logarithm(larger(most, 1.0)) / log(2)
    return int(bits) if isinstance(bits, float) else tirx.Cast("int64", bits)


def _few_places(destinations: Any, items: Any, bytes_of_sum: Any) -> Any:
    """So many places of a bucket that a block can order it, at most, of sizes that are not whole.

    TVM moves a division of integers in front of what asks whether it divides by zero.
    """
    filled = float(_FILLS[0]) * destinations / larger(items, 1.0)
    few = smaller(destinations / float(_ENOUGH_BUCKETS), filled)
    return smaller(few, float(_SUM_BYTES) / larger(bytes_of_sum, 1.0))
