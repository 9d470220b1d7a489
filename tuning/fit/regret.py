"""Regret: what a choice costs beyond the best one that was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    mean, worst : float
        Geometric mean and maximum.
    problems : int
        How many there are whose default choice was measured.
    unknown : int
        How many there are whose default choice was not.
    beyond : dict of float to int
        For each ratio, how many problems are beyond it.
    """

    mean: float
    worst: float
    problems: int
    unknown: int
    worst_problem: str
    beyond: dict[float, int]

    def __str__(self) -> str:
        text = f"{self.mean:.3f}x the best in the geometric mean of {self.problems} problems"
        for ratio, count in self.beyond.items():
            text += f", beyond {ratio:g}x {count}"
        text += f", {self.worst:.2f}x at worst ({self.worst_problem})"
        return text + (f"; {self.unknown} choices not measured" if self.unknown else "")


def regret(times: CandidateTimes, choice: Callable[[ScatterProblem], Candidate]) -> Regret:
    """What a default choice costs on measured problems.

    Raises
    ------
    ScatterError
        If none of the choices was measured.
    """
    losses: dict[str, float] = {}
    for problem, measured in times.best.items():
        chosen = choice(problem)
        if chosen in measured:
            losses[str(problem)] = measured[chosen] / min(measured.values())
    if not losses:
        raise ScatterError("fit_costs: no default choice was measured.")
    worst = max(losses, key=losses.__getitem__)
    mean = geometric_mean(losses.values())
    unknown = len(times.best) - len(losses)
    beyond = {ratio: sum(loss > ratio for loss in losses.values()) for ratio in (1.5, 2.0)}
    return Regret(mean, losses[worst], len(losses), unknown, worst, beyond)
