"""Regret: what a choice costs beyond the best one that was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import geometric_mean

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.tuning.space.candidates import Candidate

from .candidate_times import CandidateTimes


@dataclass(frozen=True)
class Regret:
    """The time of the default choice over that of the best candidate.

    Attributes
    ----------
    losses : dict of ScatterProblem to float
        For each problem whose default choice was measured.
    unknown : int
        How many there are whose default choice was not.
    """

    losses: dict[ScatterProblem, float]
    unknown: int

    @cached_property
    def mean(self) -> float:
        """The geometric mean."""
        return geometric_mean(self.losses.values())

    @cached_property
    def worst(self) -> float:
        """The maximum."""
        return max(self.losses.values())

    def __str__(self) -> str:
        text = f"{self.mean:.3f}x the best in the geometric mean of {len(self.losses)} problems"
        for ratio in (1.5, 2.0):
            text += f", beyond {ratio:g}x {sum(loss > ratio for loss in self.losses.values())}"
        text += f", {self.worst:.2f}x at worst ({max(self.losses, key=self.losses.__getitem__)})"
        return text + (f"; {self.unknown} choices not measured" if self.unknown else "")


def regret(times: CandidateTimes, choice: Callable[[ScatterProblem], Candidate]) -> Regret:
    """What a default choice costs on measured problems.

    Raises
    ------
    ScatterError
        If none of the choices was measured.
    """
    losses: dict[ScatterProblem, float] = {}
    for problem, measured in times.best.items():
        chosen = choice(problem)
        if chosen in measured:
            losses[problem] = measured[chosen] / min(measured.values())
    if not losses:
        raise ScatterError("fit_costs: no default choice was measured.")
    return Regret(losses, len(times.best) - len(losses))
