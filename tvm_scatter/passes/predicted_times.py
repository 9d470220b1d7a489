"""What scatters, and what only moves bytes, are predicted to take on a target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from tvm.target import Target

from tvm_scatter.options import current_options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.calibrated import machine_for
from tvm_scatter.selection.strategy import OpStrategy


@dataclass(frozen=True)
class PredictedTimes:
    """Microseconds on a target, by its strategy."""

    target: Target
    strategy: OpStrategy

    def scatter(self, problem: ScatterProblem) -> float:
        """Of the implementation that is chosen; infinity if nothing is known of it."""
        selection = self.strategy.default(problem, self.target, current_options())
        known = selection.predictions.get(selection.implementation.name)
        return inf if known is None else float(known.microseconds)

    def moved(self, size: float) -> float:
        """Of a launch that reads and writes so many bytes in all."""
        return float(self._machine.launch + size / self._machine.memory)

    @cached_property
    def _machine(self) -> Any:
        return machine_for(self.strategy.backend, self.target)
