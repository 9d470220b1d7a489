"""What an implementation costs: its own estimate, times coefficients that were fitted to times.

The estimate is in the implementation's file. It names what the time is spent on, and takes the
sizes of a problem and the rates of a machine. The coefficients say how far each term is off. There
are at most eight for an implementation, in one file for each kind of target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from importlib import resources
from operator import add, mul
from typing import Any, Protocol

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .arithmetic import root
from .machine import Machine
from .work import SPREADS, Terms, Work

#: For each implementation and each of its terms a factor.
Coefficients = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Prediction:
    """The predicted time of an implementation for a problem.

    Attributes
    ----------
    microseconds : float or expression
        The geometric mean over both spreads of the indices.
    terms : dict of str to (float or expression)
        Of the skewed spread: the microseconds of each term.
    """

    microseconds: Any
    terms: Mapping[str, Any]

    def __str__(self) -> str:
        """The time, and the three terms that it is most spent on."""
        largest = sorted(self.terms.items(), key=lambda term: -term[1])[:3]
        parts = ", ".join(f"{name} {value:.1f}" for name, value in largest if value > 0)
        return f"{self.microseconds:.1f} us ({parts})"


class Costly(Protocol):
    """What is asked for its costs: an implementation."""

    name: str

    def given(self, problem: ScatterProblem) -> ScatterProblem:
        """The problem as it gets it."""
        ...

    def cost(self, work: Work, config: Mapping[str, int]) -> Terms | None:
        """The terms, before they are multiplied by coefficients."""
        ...


#: Predicts a time from sizes.
Predict = Callable[[Sizes], Prediction]


#: By how many times a ratio of two estimates may be off that were not fitted.
_UNFITTED_ERROR = 2.0


@cache
def _fit(target_kind: str) -> Mapping[str, Any]:
    path = resources.files("tvm_scatter.strategies") / "defaults" / f"{target_kind}.json"
    found: Mapping[str, Any] = {}
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else found


def coefficients(target_kind: str) -> Coefficients:
    """The fitted coefficients for a kind of target; none for kinds that were never fitted."""
    found: Coefficients = _fit(target_kind).get("coefficients", {})
    return found


def ratio_error(target_kind: str) -> float:
    """By how many times the ratio of the two best predictions is off, typically, in the fit."""
    return float(_fit(target_kind).get("ratio_error", _UNFITTED_ERROR))


@dataclass(frozen=True)
class Costs:
    """Predicts times for a problem on a machine.

    Parameters
    ----------
    fitted : mapping
        See :func:`coefficients`.
    """

    problem: ScatterProblem
    machine: Machine
    fitted: Coefficients

    def of(self, implementation: Costly, config: Mapping[str, int]) -> Predict | None:
        """A function that predicts the time from sizes; ``None`` if the implementation has none."""
        given = implementation.given(self.problem)
        if given != self.problem:
            return replace(self, problem=given)._around(self.problem, implementation, config)
        return self._around(given, implementation, config)

    def _around(
        self, whole: ScatterProblem, implementation: Costly, config: Mapping[str, int]
    ) -> Predict | None:
        """The same where the implementation computes a part of a whole problem."""
        factors = self.fitted.get(implementation.name, {})

        def terms(work: Work) -> Terms:
            found = implementation.cost(work, config) or {}
            own = {name: value * factors.get(name, 1.0) for name, value in found.items()}
            return {**own, **work.beside(whole)}

        def predict(sizes: Sizes) -> Prediction:
            found = [terms(work) for work in self._works(sizes)]
            totals = [reduce(add, each.values(), 0.0) for each in found]
            return Prediction(root(reduce(mul, totals)), found[-1])

        ones = Sizes.of(self.problem, dict.fromkeys(self.problem.symbols, 1))
        return None if implementation.cost(self._works(ones)[0], config) is None else predict

    def _works(self, sizes: Sizes) -> Sequence[Work]:
        return self._static_works if self.problem.is_static else self._works_of(sizes)

    def _works_of(self, sizes: Sizes) -> Sequence[Work]:
        return [Work.of(self.problem, self.machine, spread, sizes) for spread in SPREADS]

    @cached_property
    def _static_works(self) -> Sequence[Work]:
        return self._works_of(Sizes.of(self.problem))
