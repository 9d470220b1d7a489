"""Work: what a problem asks of a machine, in the quantities that costs are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from tvm_scatter.problem.reductions import FLOATS, HALVES, Rounding, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.vectors import needs_swaps, widest_vector

from .arithmetic import larger, logarithm, real, smaller
from .machine import Machine

#: Microseconds by what they are spent on: numbers, or float64 expressions.
Terms = Mapping[str, Any]
#: How indices may repeat. Costs are the geometric mean of both: a choice should stand either.
SPREADS = ("even", "skewed")
#: Of zipf(1.2), a skewed distribution, the most frequent of many places has about this share.
_HOTTEST = 0.2
#: Threads that a multiprocessor has at a time.
_THREADS = 2048
#: Of skewed accesses all over a large output this share finds the place in the cache.
_AGAIN = 0.5
_SECTOR, _LINE = 32, 128


@dataclass(frozen=True)
class Work:
    """A problem on a machine. Sizes are ``float`` or float64 expressions; times microseconds.

    Parameters
    ----------
    spread : str
        One of :data:`SPREADS`.
    """

    problem: ScatterProblem
    machine: Machine
    spread: str
    batch: Any
    extent: Any
    slice: Any
    count: Any
    items: Any
    width: Any
    destinations: Any
    data_size: Any
    update_size: Any

    @staticmethod
    def of(
        problem: ScatterProblem, machine: Machine, spread: str, sizes: Sizes | None = None
    ) -> Work:
        """The work of a problem; its sizes are needed if it is not static."""
        sizes = sizes or Sizes.of(problem)
        names = ("batch", "extent", "slice", "count", "items", "width", "destinations")
        named = {name: real(getattr(sizes, name)) for name in (*names, "data_size", "update_size")}
        return Work(problem, machine, spread, **named)

    # Bytes.

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return item_bytes(self.problem.data_dtype)

    @cached_property
    def data_bytes(self) -> Any:
        """Bytes of the data, and of the output."""
        return self.data_size * self.element

    @cached_property
    def row_bytes(self) -> Any:
        """Bytes of the elements that one index moves."""
        return self.width * self.element

    @cached_property
    def operand_bytes(self) -> Any:
        """Bytes of updates and indices, each read once."""
        return self.update_bytes + self.index_bytes

    @cached_property
    def update_bytes(self) -> Any:
        """Bytes of the updates as they are stored."""
        problem = self.problem
        stored = (self.batch if problem.update_batch else 1.0) * (
            self.count if problem.update_count else 1.0
        )
        return stored * (self.slice if problem.update_slice else 1.0) * self.element

    @cached_property
    def index_bytes(self) -> Any:
        """Bytes of all index tensors."""
        problem = self.problem
        entries = self.count * (self.batch if problem.index_batch else 1.0)
        entries = entries * (self.slice if problem.index_slice else 1.0)
        return entries * self.item_index_bytes

    @property
    def item_index_bytes(self) -> int:
        """Bytes of the index components of one item."""
        return len(self.problem.extents) * item_bytes(self.problem.index_dtype)

    @cached_property
    def copied_bytes(self) -> Any:
        """Bytes that copying the data moves; none if the problem is in place."""
        return 0.0 if self.problem.in_place else self._ways * self.data_bytes

    @cached_property
    def written_bytes(self) -> Any:
        """Bytes read and written where each output row that changes is written once.

        If the problem is not in place, all rows are.
        """
        rows = self.touched if self.problem.in_place else self.destinations
        return self._ways * rows * self.row_bytes

    @cached_property
    def held_bytes(self) -> Any:
        """Bytes read and written where all of the data are held and written once."""
        return self._ways * self.data_bytes

    @property
    def _ways(self) -> int:
        """How often each element of the data moves: it need not be read where it is a number."""
        return 1 if self.problem.fill else 2

    # Numbers.

    @cached_property
    def touched(self) -> Any:
        """At most so many destinations get an update."""
        return smaller(self.items, self.destinations)

    @cached_property
    def vector(self) -> int:
        """Elements of an access of at most 16 bytes that certainly divide a row."""
        return widest_vector(self.problem)

    @cached_property
    def row_sectors(self) -> Any:
        """Sectors of memory in a row."""
        return larger(self.row_bytes / _SECTOR, 1.0)

    @property
    def swaps_in_shared(self) -> bool:
        """Whether combining in shared memory does, where 16-bit floats are held in 32 bits."""
        problem = self.problem
        narrow = self.element < 4 and problem.data_dtype not in HALVES
        return not problem.only_stores and (narrow or not problem.reduces.has_atomic)

    # How indices repeat.

    @cached_property
    def hottest(self) -> Any:
        """Updates of the most frequent place of a line along the axis."""
        even = self.count / larger(self.extent, 1.0)
        share = _HOTTEST if self.spread == "skewed" else 0.0
        return 1.0 if self.problem.unique else share * self.count + (1 - share) * even

    @cached_property
    def contenders(self) -> Any:
        """Updates of that place, or of its sector, that combine in memory one after the other.

        Of a minimum or maximum these are the ones under way before the first result is seen.
        """
        sectors = larger(self.data_bytes / _SECTOR, 1.0)
        # Lines that are not under way together wait for each other.
        together = larger(self._under_way / larger(self.count, 1.0), 1.0)
        turns = larger(self.lines / together, 1.0)
        found = larger(self.hottest * turns, self.items * self.row_sectors / sectors)
        if self._looks_first:
            found = smaller(found, self._under_way / self.lines)
        return found

    @cached_property
    def writes(self) -> Any:
        """Items whose update changes memory. Minima and maxima look first, and seldom write.

        Of n values in any order, the expected number of new maxima is the n-th harmonic number
        (Knuth, The Art of Computer Programming, volume 1, section 1.2.10).
        """
        if not self._looks_first:
            return self.items
        each = self.items / larger(self.destinations, 1.0)
        settled = self.destinations * (1 + logarithm(1 + each))
        return smaller(self.items, settled + self._under_way)

    def contention(self, together: int = 1) -> Any:
        """Cycles for which the updates of one place in memory hold each other up.

        Parameters
        ----------
        together : int
            Elements that one instruction combines.
        """
        operations = smaller(self.width, _LINE / self.element) / together
        if self.problem.only_stores:
            cycles = 0.1 * operations
        elif self._looks_first:
            cycles = 0.5 * operations
        else:
            cycles = 4 * operations + self._retry_cycles
        return self.contenders * cycles

    @property
    def contention_in_shared(self) -> Any:
        """Cycles for which an update of one place in shared memory holds up the next."""
        if self.problem.only_stores:
            return 0.0
        native = self.problem.data_dtype in ("int32", "uint32") and self.problem.reduces.has_atomic
        return 1.0 if native else 25.0 + (self._retry_cycles / 2 if self.swaps_in_shared else 0.0)

    @property
    def _retry_cycles(self) -> float:
        """Cycles that an update loses to others of its place, on an H200.

        A loop of compare-and-swap that fails begins again. Products of floats fail seldom, because
        they are measured on factors of 1 and -1, and sums of bool soon change nothing.
        """
        if not needs_swaps(self.problem) or self._looks_first:
            return 0.0
        product = self.problem.reduces.rounding is Rounding.PRODUCT
        seldom = (
            product and self.problem.data_dtype in FLOATS
        ) or self.problem.data_dtype == "bool"
        return 20.0 if seldom else 400.0

    @property
    def _looks_first(self) -> bool:
        return self.problem.reduces.is_extreme and not self.problem.only_stores

    @cached_property
    def _under_way(self) -> Any:
        """Items that all threads of the machine work on at a time."""
        return self.machine.multiprocessors * _THREADS * self.vector / larger(self.width, 1.0)

    @cached_property
    def lines(self) -> Any:
        """Lines along the axis that have indices of their own, and so a hottest place each."""
        lines = self.batch if self.problem.index_batch else 1.0
        return larger(lines * (self.slice if self.problem.index_slice else 1.0), 1.0)

    # Microseconds.

    def launches(self, number: Any) -> Any:
        """Launches, one after the other."""
        return number * self.machine.launch

    def streams(self, number_of_bytes: Any) -> Any:
        """Bytes read or written in order."""
        return number_of_bytes / self.machine.memory

    def sectors(self, number: Any, footprint: Any = None) -> Any:
        """Accesses to sectors at random places of so many bytes, as far as the cache holds them."""
        hits = 1.0 if footprint is None else 1.0 - self.missed(footprint)
        return number * hits / self.machine.cached_sectors

    def misses(self, number: Any, footprint: Any) -> Any:
        """Accesses to sectors at random places of so many bytes, as far as memory must serve."""
        again = _AGAIN if self.spread == "skewed" else 0.0
        return number * (1 - again) * self.missed(footprint) / self.machine.missed_sectors

    def cycles(self, number: Any) -> Any:
        """Cycles of one unit."""
        return number / self.machine.clock

    def turns(self, blocks: Any) -> Any:
        """How many blocks the busiest unit runs, if one after the other; in the mean, if many."""
        return larger(blocks / self.machine.multiprocessors, 1.0)

    def whole_turns(self, blocks: float) -> float:
        """The same where blocks are so few that the last turn counts as a whole one."""
        return float(max(ceil(blocks / self.machine.multiprocessors), 1))

    def missed(self, footprint: Any) -> Any:
        """The share of accesses at random places of so many bytes that the cache does not serve."""
        cache = self.machine.cache_bytes
        return larger(1.0 - cache / larger(footprint, 1.0), 0.0)

    # What several implementations do before and after.

    def beside(self, whole: ScatterProblem) -> Terms:
        """What is done around an implementation to compute the whole problem that it has a part of.

        These launches are the same for all implementations, and have no factors.
        """
        terms = {}
        if whole.fill and not self.problem.fill:
            terms["fill"] = self.launches(1) + self.streams(self.data_bytes)
        if whole.epilogue and not self.problem.epilogue:
            terms["finish"] = self.launches(1) + self.streams(2 * self.data_bytes)
        return terms

    @property
    def around_launches(self) -> int:
        """Launches that reset touched places to the identity, and that divide by counts."""
        problem = self.problem
        return problem.starts_from_identity + 3 * problem.reduces.needs_count

    @cached_property
    def around(self) -> Any:
        """The time of these launches, beyond that of launching."""
        problem, total = self.problem, 0.0
        if problem.starts_from_identity:
            touched = self.items * self.row_sectors
            total = total + self.streams(self.index_bytes) + self.sectors(touched)
        if problem.reduces.needs_count:
            total = total + self.streams(8 * self.destinations + 2 * self.data_bytes)
            total = total + self.streams(self.index_bytes) + self.sectors(self.items)
            total = total + self.cycles(2 * self.hottest)
        return total
