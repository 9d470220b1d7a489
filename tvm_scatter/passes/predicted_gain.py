"""Compares what a rewrite is predicted to take with what stands there, at sizes that may come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import exp, log

from tvm.target import Target

from tvm_scatter.selection.cost import margin_below_a_record
from tvm_scatter.selection.undominated import VALUES

#: Microseconds as it stands, and rewritten, at some sizes; ``None`` if nothing is known of these.
Costs = Callable[[Mapping[str, int]], tuple[float, float] | None]


@dataclass(frozen=True)
class PredictedGain:
    """What a rewrite is predicted to take.

    Attributes
    ----------
    costs : list of (float, float)
        Microseconds as it stands, and rewritten, for each of the sizes that it may have. There are
        none where nothing is known of what it takes.
    target : tvm.target.Target
        What it runs on.
    """

    costs: list[tuple[float, float]]
    target: Target

    @staticmethod
    def over(symbols: Collection[str], costs: Costs, target: Target) -> PredictedGain:
        """The gain for the values that symbolic sizes may have, all of them the same one."""
        values = VALUES if symbols else VALUES[:1]
        found = [costs(dict.fromkeys(symbols, value)) for value in values]
        return PredictedGain([each for each in found if each is not None], target)

    @property
    def is_clear(self) -> bool:
        """Whether the rewrite is predicted to take clearly less, in the mean of the sizes."""
        margin = margin_below_a_record(self.target.kind.name)
        return bool(self.costs) and self._part * margin < 1

    @property
    def _part(self) -> float:
        """What it takes as a part of what stands there, in the geometric mean of the sizes."""
        return exp(sum(log(after / before) for before, after in self.costs) / len(self.costs))

    def __str__(self) -> str:
        """The prediction, as a clause."""
        if len(self.costs) > 1:
            return f"predicted {self._part:.2f} of the time in the mean of sizes"
        before, after = (self.costs or [(0.0, 0.0)])[0]
        return f"predicted {after:.0f} us in place of {before:.0f}"
