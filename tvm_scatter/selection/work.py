"""Work: what a problem asks of a machine, in the quantities that costs are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.vectors import widest_vector

from .arithmetic import is_known, larger, power, real, smaller
from .machine import Machine

#: Microseconds by what they are spent on: numbers, arrays of them, or float64 expressions.
Terms = Mapping[str, Any]
#: How indices may repeat. Costs are the geometric mean of both: a choice should stand either.
SPREADS = ("even", "skewed")
#: The skewed distribution: the k-th frequent place has a share in proportion to k to minus this.
_ZIPF = 1.2
#: The sum of all these shares: Riemann's zeta function.
_ZETA = 5.5916
#: Of skewed accesses all over a large output this share finds the place in the cache.
_AGAIN = 0.5
#: Bytes that a GPU's memory moves together, and that its cache serves together.
SECTOR_BYTES, LINE_BYTES = 32, 128


@dataclass(frozen=True)
class Work:
    """A problem on a machine. Times are microseconds.

    Sizes are ``float``, float64 numbers for several sizes at once, or float64 expressions.

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
        named = {name: _real(getattr(sizes, name)) for name in (*names, "data_size", "update_size")}
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

        All rows are if the problem is not in place, begins with a number, or computes what follows.
        """
        rows = self.touched if self.keeps_rows else self.destinations
        return self._ways * rows * self.row_bytes

    @property
    def keeps_rows(self) -> bool:
        """Whether rows without an update stay in the output as they are."""
        return self.problem.in_place and not (self.problem.fill or self.problem.epilogue)

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
        return larger(self.row_bytes / SECTOR_BYTES, 1.0)

    # How indices repeat.

    @cached_property
    def hottest(self) -> Any:
        """Updates of the most frequent place of a line along the axis."""
        if self.problem.unique:
            return 1.0
        even = self.count / larger(self.extent, 1.0)
        if self.spread == "skewed":
            return larger(self.count / _harmonic(larger(self.extent, 1.0)), even)
        return even

    @cached_property
    def lines(self) -> Any:
        """Lines along the axis, each of which has a hottest place."""
        return larger(self.batch * (self.slice if self.problem.index_slice else 1.0), 1.0)

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

        These launches are the same for all implementations, and have no factors. On a CPU each is a
        loop.
        """
        terms, is_launch = {}, float(self.machine.threads > 1)
        if whole.fill and not self.problem.fill:
            terms["fill"] = self.launches(0.5 * is_launch) + self.streams(self.data_bytes)
        if whole.epilogue and not self.problem.epilogue:
            terms["finish"] = self.launches(is_launch) + self.streams(2 * self.data_bytes)
        return terms


def _real(size: Any) -> Any:
    """A size. Where there is nothing to do, all costs are those of a single element."""
    return larger(real(size), 1.0) if is_known(size) else real(size)


def _harmonic(number: Any) -> Any:
    """The sum of k to minus 1.2 for so many k, by Euler and Maclaurin: within 1 % from 3 on.

    So the most frequent of two places has a share of 0.7, and of a million one of 0.19.
    """
    small = _ZIPF - 1.0
    rest = power(number, -small) / small - 0.5 * power(number, -_ZIPF)
    return _ZETA - rest + 0.1 * power(number, -_ZIPF - 1.0)
