"""Sums of 16-bit floats, which stop growing if they are rounded after each of many additions."""

from __future__ import annotations

from typing import Any, Protocol

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .arithmetic import larger, real
from .cost import PROHIBITIVE, Predict, Prediction

#: With no more updates than this, or than there are places, sums may be rounded after each
#: addition, as PyTorch does on GPUs: of so many the error is a few roundings, and where most places
#: have none or one, what is rounded once takes up to nine times as long.
_FEW = 64


class Sums(Protocol):
    """What may sum: an implementation."""

    accumulates_wide: bool


def rounds_each(implementation: Sums, problem: ScatterProblem) -> bool:
    """Whether it rounds a sum of 16 bits after each addition."""
    return problem.rounds and not implementation.accumulates_wide


def decided_by_sizes(problem: ScatterProblem) -> bool:
    """Whether the sizes at run time decide if there are many updates."""
    return not (problem.count.is_static and problem.extent.is_static)


def has_many_updates(problem: ScatterProblem) -> bool:
    """Whether there certainly are many updates, so that some places have several."""
    known = not decided_by_sizes(problem)
    return known and bool(_excess(problem.count.constant, problem.extent.constant) > 0)


def for_few_updates(predict: Predict) -> Predict:
    """Predicts the same where there are few updates, else far too long."""

    def predicted(sizes: Sizes) -> Prediction:
        found = predict(sizes)
        factor = 1.0 + PROHIBITIVE * _excess(sizes.count, sizes.extent)
        return Prediction(found.microseconds * factor, found.terms)

    return predicted


def _excess(count: Any, extent: Any) -> Any:
    """How many updates there are above what is few."""
    return larger(real(count) - larger(real(extent), float(_FEW)), 0.0)
