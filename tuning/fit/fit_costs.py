"""Fit the coefficients of the cost estimates to measured times, and say what the default costs.

::

    python -m tvm_scatter.tuning.fit.fit_costs LOG [LOG ...] --bench FILE --held-out LOG \
        -o strategies/defaults/cuda.json

A coefficient says how many times the estimate of a term is off. The fit minimises the squared
logarithms of predicted over measured times, one implementation after the other. Errors beyond a
limit count linearly (Huber, "Robust Estimation of a Location Parameter", 1964).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.calibrated import machine_for
from tvm_scatter.selection.cost import Coefficients, coefficients
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.tuning.space.candidates import default_candidate, need_strategy
from tvm_scatter.tuning.store.log_files import write
from tvm_scatter.tuning.store.packed import read_log

from .candidate_times import CandidateTimes, measured_in_log, measured_in_report
from .regret import regret

_COMMENT = (
    "Fitted to measurements by python -m tvm_scatter.tuning.fit.fit_costs. "
    "What its logs have no records of keeps the coefficients that it has."
)
#: Coefficients stay physical: within these bounds.
_LEAST, _MOST = 0.02, 50.0
#: Logarithms of ratios beyond this count linearly.
_LARGE = 0.4
#: What a coefficient's distance from 1 weighs.
_RIDGE = 1e-3
#: What is far from the best is never chosen, so it counts less: its weight is the ratio to this.
_NEARNESS = 0.7
#: The estimates of the terms of a measurement, its microseconds, and how much it counts.
Row = tuple[Terms, float, float]
_SPREAD_OF = {"uniform": "even", "permutation": "even"}
_SPREAD_OF |= dict.fromkeys(("zipf(1.1)", "zipf(1.2)", "zipf(1.3)"), "skewed")


def fit(times: Sequence[CandidateTimes], kept: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """The coefficients of every implementation that says what it costs, but of those ``kept``."""
    rows: dict[str, list[Row]] = {}
    for known in times:
        for name, row in _rows(known, kept):
            rows.setdefault(name, []).append(row)
    return {name: fit_one(rows[name]) for name in sorted(rows)}


def _rows(known: CandidateTimes, kept: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """For each measurement of each implementation's usual knobs its terms, time and weight."""
    strategy = need_strategy(known.target)
    machine = machine_for(strategy.backend, known.target)
    for problem, by_candidate in known.each.items():
        best = known.best[problem]
        fastest = min(best.values())
        for candidate in known.to_fit(problem):
            name = candidate.implementation
            if name in kept:
                continue
            branch = strategy.forced(candidate.way, problem, known.target)
            weight = known.weight * (fastest / best[candidate]) ** _NEARNESS
            for distribution, microseconds in by_candidate[candidate].items():
                if distribution in _SPREAD_OF:
                    work = Work.of(problem, machine, _SPREAD_OF[distribution])
                    terms = branch.implementation.cost(work, branch.config)
                    if terms is not None:
                        yield name, (terms, microseconds, weight)


def fit_one(rows: Sequence[Row]) -> dict[str, float]:
    """The coefficients of one implementation, by term."""
    names = list(dict.fromkeys(name for terms, _, _ in rows for name in terms))
    estimates = np.array([[terms.get(name, 0.0) for name in names] for terms, _, _ in rows])
    measured, weights = np.array([row[1:] for row in rows]).T
    weights = np.append(weights / weights.sum(), np.ones(len(names)))

    def off(logs: Any) -> Any:
        return np.append(np.log(estimates @ np.exp(logs) / measured), _RIDGE**0.5 * logs)

    def loss(squares: Any) -> Any:
        """Huber's, with its slope by the square. Without curvature, steps are more, and safe."""
        sizes = np.sqrt(np.maximum(squares, _LARGE**2))
        value = np.where(squares <= _LARGE**2, squares, _LARGE * (2 * sizes - _LARGE))
        return weights * [value, _LARGE / sizes, np.zeros_like(sizes)]

    bounds = np.log(_LEAST), np.log(_MOST)
    exact = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-12)
    found = least_squares(off, np.zeros(len(names)), bounds=bounds, loss=loss, **exact)
    return {name: float(f"{np.exp(at):.3g}") for name, at in zip(names, found.x, strict=True)}


def ratio_error(times: Sequence[CandidateTimes], fitted: Coefficients) -> float:
    """By how many times the ratio of the two best predictions is off, typically.

    This is one standard deviation of its logarithm, by the median, which outliers move little.
    """
    off = []
    for known in times:
        strategy = need_strategy(known.target)
        for problem, measured in known.best.items():
            usual = known.usual(problem)
            predicted = strategy.default(problem, known.target, fitted=fitted).predictions
            best = [name for name in predicted if name in usual][:2]
            ratios = [predicted[name].microseconds / measured[usual[name]] for name in best]
            off += [abs(np.log(ratios[0] / ratios[1]))] if len(best) == 2 else []
    return float(f"{np.exp(1.4826 * np.median(off)):.3g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print the regret and write the coefficients."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.fit.fit_costs")
    parser.add_argument("log", metavar="LOG", nargs="+", help="directories of tvm-scatter tune")
    parser.add_argument("--target", metavar="KIND", help="what the logs must be for")
    parser.add_argument(
        "--bench", metavar="FILE", action="append", default=[],
        help="figures of tvm-scatter bench --all --json or of second_round; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--held-out", metavar="LOG", action="append", default=[],
        help="other problems, to judge by; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--keep", metavar="NAME", action="append", default=[],
        help="an implementation that the logs measured as it no longer is; may be repeated",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="where the coefficients go")
    parsed = parser.parse_args(arguments)
    try:
        known = {path: _read(path, parsed.target) for path in parsed.log}
        target = known[parsed.log[0]].target
        known |= {path: measured_in_report(Path(path), target) for path in parsed.bench}
        judged = {path: _read(path, target.kind.name) for path in parsed.held_out}
        # What no log has records of keeps what it has.
        fitted = {**coefficients(target.kind.name), **fit(list(known.values()), parsed.keep)}
        costs = {}
        for path, times in {**known, **judged}.items():
            found = regret(times, lambda problem: default_candidate(problem, target, fitted))
            costs[Path(path).name] = str(found)
            print(f"{path}: {found}")
        if parsed.output:
            plain = {
                "comment": _COMMENT,
                "machine": machine_for(need_strategy(target).backend, target).name,
                "regret": costs,
                "ratio_error": ratio_error(list(known.values()), fitted),
                "coefficients": fitted,
            }
            write(Path(parsed.output), json.dumps(plain, indent=2) + "\n")
            print(f"{sum(map(len, fitted.values()))} coefficients in {parsed.output}")
    except ScatterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _read(path: str, kind: str | None) -> CandidateTimes:
    times = measured_in_log(read_log(Path(path)))
    found = times.target.kind.name
    if kind not in (None, found):
        raise ScatterError(f"fit_costs: {path!r} is a log of {found}, not of {kind}.")
    return times


if __name__ == "__main__":
    sys.exit(main())
