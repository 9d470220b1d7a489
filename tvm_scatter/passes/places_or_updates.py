"""What it takes to write updates to where they go, or to look up the update of each place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from tvm.target import Target

from tvm_scatter.options import current_options
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.strategy import OpStrategy
from tvm_scatter.selection.undominated import MOST_ELEMENTS
from tvm_scatter.selection.work import SECTOR_BYTES

from .predicted_gain import PredictedGain
from .predicted_times import PredictedTimes

#: How many times faster than memory the cache answers.
_CACHE = 4.0


@dataclass(frozen=True)
class PlacesOrUpdates:
    """A plain scatter, and the scatter of its entries' numbers with a read for each place.

    Attributes
    ----------
    problem : ScatterProblem
        The scatter.
    numbers : ScatterProblem
        The scatter of the numbers.
    fill : relax.Expr or None
        The number that the data are everywhere; ``None`` if they must be read.
    overwritten : bool
        Whether the scatter overwrites its data as it stands.
    """

    problem: ScatterProblem
    numbers: ScatterProblem
    fill: Any
    overwritten: bool
    target: Target
    strategy: OpStrategy

    @cached_property
    def _gain(self) -> PredictedGain:
        symbols = {*self.problem.symbols, *self.numbers.symbols}
        return PredictedGain.over(symbols, self._costs, self.target)

    @property
    def gains(self) -> bool:
        """Whether it is predicted to take clearly less if each place looks up its update."""
        return self._gain.is_clear

    def __str__(self) -> str:
        """What is done, as a clause."""
        return f"looks up the update of each place: {self._gain}"

    def _costs(self, sizes: Mapping[str, int]) -> tuple[float, float] | None:
        """Microseconds either way; ``None`` if nothing is known of these sizes."""
        problem, numbers = (each.with_sizes(sizes) for each in (self.problem, self.numbers))
        if max(problem.elements, numbers.elements) > MOST_ELEMENTS:
            return None
        before = self._written(problem)
        after = self._filled(numbers) + self._looked_up(problem, numbers)
        return (before, after) if 0 < before < inf and after < inf else None

    def _written(self, problem: ScatterProblem) -> float:
        """Microseconds of the scatter as later passes leave it."""
        if self.fill is not None:
            return self._filled(problem)
        in_place = self.overwritten and current_options().in_place
        return self._times.scatter(replace(problem, in_place=in_place or problem.in_place))

    def _filled(self, problem: ScatterProblem) -> float:
        """Microseconds of a scatter into one number everywhere, which it or another one writes."""
        whole = _bytes(problem.data_size.constant, problem.data_dtype)
        in_place = replace(problem, in_place=True)
        apart = self._times.scatter(in_place) + self._times.moved(whole)
        if not self.strategy.backend.fills_under(current_options()):
            return apart
        return min(apart, self._times.scatter(replace(problem, fill="0")))

    def _looked_up(self, problem: ScatterProblem, numbers: ScatterProblem) -> float:
        """Microseconds of a read for each place, whose neighbours have numbers side by side."""
        dtype, elements = problem.data_dtype, problem.data_size.constant
        whole = _bytes(elements, dtype)
        once = whole if self.fill is not None else 2 * whole
        once += _bytes(numbers.data_size.constant, numbers.data_dtype)
        # Numbers are read for each element, and an element of an update is a sector by itself.
        again = _bytes(elements, numbers.data_dtype) + SECTOR_BYTES * problem.update_size.constant
        return self._times.moved(once + again / _CACHE)

    @cached_property
    def _times(self) -> PredictedTimes:
        return PredictedTimes(self.target, self.strategy)


def _bytes(elements: int, dtype: str) -> int:
    return elements * item_bytes(dtype)
