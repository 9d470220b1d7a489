"""What an implementation costs: its own estimate, times coefficients that were fitted to times.

The estimate is in the implementation's file. It names what the time is spent on, and takes the
sizes of a problem and the rates of a machine. The coefficients say how far each term is off. There
are at most eight for an implementation, in one file for each kind of target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from math import inf
from typing import Any, Protocol

from tvm_scatter.errors import ScatterError
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
    terms : dict of str to float
        The microseconds of each term, which add up to the time; empty if sizes are symbolic.
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


#: Above any ratio of two times: what is chosen for its time is not chosen then.
PROHIBITIVE = 1e9
#: By how many times a ratio of two estimates may be off that were not fitted.
_UNFITTED_ERROR = 2.0


@cache
def _fit(target_kind: str) -> Mapping[str, Any]:
    path = resources.files("tvm_scatter.strategies") / "defaults" / f"{target_kind}.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        factors = [factor for terms in found["coefficients"].values() for factor in terms.values()]
        ratio = found.get("ratio_error", _UNFITTED_ERROR)
        damaged = not all(0 < float(number) < inf for number in (ratio, *factors))
    except (ValueError, KeyError, TypeError, AttributeError):
        damaged = True
    if damaged:
        raise ScatterError(
            f"costs: {str(path)!r} must have positive numbers under 'coefficients'; install the "
            "package again, or fit them anew."
        )
    return found


def coefficients(target_kind: str) -> Coefficients:
    """The fitted coefficients for a kind of target; none for kinds that were never fitted."""
    return _fit(target_kind).get("coefficients", {})


def ratio_error(target_kind: str) -> float:
    """By how many times the ratio of the two best predictions is off, typically, in the fit."""
    return float(_fit(target_kind).get("ratio_error", _UNFITTED_ERROR))


def margin_below_a_record(target_kind: str) -> float:
    """How many times less must be predicted than was measured of another: half of an error."""
    return ratio_error(target_kind) ** (0.5 * 0.5**0.5)  # the ratio of two has the errors of both


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
        part = implementation.given(self.problem)
        factors = self.fitted.get(implementation.name, {})

        def predict(works: Sequence[Work]) -> Prediction | None:
            product, each = 1.0, []
            for work in works:
                estimates = implementation.cost(work, config)
                if estimates is None:
                    return None
                terms = {name: value * factors.get(name, 1.0) for name, value in estimates.items()}
                terms |= work.beside(self.problem)
                product = product * sum(terms.values(), 0.0)
                each.append(terms)
            total = root(product)
            return Prediction(total, _shares(total, each))

        known = predict(_some_works(part, self.machine))
        if known is None:
            return None
        if self.problem.is_static:
            return lambda _sizes: known
        return lambda sizes: predict(_works(part, self.machine, sizes)) or known


def _shares(total: Any, each: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """What of the time each term has, in the mean over the spreads."""
    if not isinstance(total, float):
        return {}
    found: dict[str, float] = {}
    for terms in each:
        whole = sum(terms.values(), 0.0) * len(each)
        for name, value in terms.items():
            found[name] = found.get(name, 0.0) + total * value / whole
    return found


@lru_cache(maxsize=16)
def _some_works(problem: ScatterProblem, machine: Machine) -> Sequence[Work]:
    """Of a problem with symbolic sizes some work, to ask for terms."""
    return _works(problem, machine, Sizes.of(problem, dict.fromkeys(problem.symbols, 1)))


def _works(problem: ScatterProblem, machine: Machine, sizes: Sizes) -> Sequence[Work]:
    return [Work.of(problem, machine, spread, sizes) for spread in SPREADS]
