"""Fit the coefficients of the cost estimates to measured times, and say what the default costs.

::

    python -m tvm_scatter.tuning.fit.fit_costs LOG [LOG ...] --bench FILE --held-out LOG \
        -o strategies/defaults/cuda.json

A coefficient says how many times the estimate of a term is off. The fit minimises the squared
logarithms of predicted over measured times, one implementation after the other, by the method of
Levenberg and Marquardt (Marquardt, "An Algorithm for Least-Squares Estimation of Nonlinear
Parameters", 1963). Errors beyond a limit count linearly (Huber, "Robust Estimation of a Location
Parameter", 1964).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.cost import Coefficients
from tvm_scatter.selection.work import Work
from tvm_scatter.tuning.space.candidates import default_candidate, need_strategy
from tvm_scatter.tuning.store.log_files import write
from tvm_scatter.tuning.store.packed import read_log

from .candidate_times import CandidateTimes, measured_in_bench, measured_in_log
from .regret import regret

#: Coefficients stay physical: within these bounds.
_LEAST, _MOST = 0.02, 50.0
#: Logarithms of ratios beyond this count linearly.
_LARGE = 0.4
#: What a coefficient's distance from 1 weighs.
_RIDGE = 1e-3
_STEPS = 60
#: What is far from the best is never chosen, so it counts less: its weight is the ratio to this.
_NEARNESS = 0.7
_SPREAD_OF = {"uniform": "even", "permutation": "even"}
_SPREAD_OF |= dict.fromkeys(("zipf(1.1)", "zipf(1.2)", "zipf(1.3)"), "skewed")


def fit(times: Sequence[CandidateTimes]) -> dict[str, dict[str, float]]:
    """The coefficients of every implementation that says what it costs."""
    rows: dict[str, list[tuple[dict[str, float], float, float]]] = {}
    for known in times:
        for name, row in _rows(known):
            rows.setdefault(name, []).append(row)
    return {name: fit_one(rows[name]) for name in sorted(rows)}


def _rows(known: CandidateTimes) -> Iterator[tuple[str, tuple[dict[str, float], float, float]]]:
    """For each measurement of each implementation's usual knobs its terms, time and weight."""
    strategy = need_strategy(known.target)
    machine = strategy.backend.machine(known.target)
    for problem, by_candidate in known.each.items():
        best = known.best[problem]
        fastest = min(best.values())
        for name, candidate in known.usual(problem).items():
            weight = known.weight * (fastest / best[candidate]) ** _NEARNESS
            for distribution, microseconds in by_candidate[candidate].items():
                spread = _SPREAD_OF.get(distribution)
                if spread is None:
                    continue
                work = Work.of(problem, machine, spread)
                terms = strategy.implementations[name].cost(work, dict(candidate.config))
                if terms is not None:
                    yield name, (dict(terms), microseconds, weight)


def fit_one(rows: Sequence[tuple[dict[str, float], float, float]]) -> dict[str, float]:
    """The coefficients of one implementation, by term.

    Parameters
    ----------
    rows : sequence of (terms, microseconds, weight)
        The estimates of a problem's terms, and the time that was measured.
    """
    names = list(dict.fromkeys(name for terms, _, _ in rows for name in terms))
    estimates = np.array([[terms.get(name, 0.0) for name in names] for terms, _, _ in rows])
    measured = np.log([microseconds for _, microseconds, _ in rows])
    weights = np.array([weight for _, _, weight in rows])
    weights /= weights.sum()
    logs, damping = np.zeros(len(names)), 1.0
    low, high = np.log(_LEAST), np.log(_MOST)

    def loss(at: Any) -> tuple[float, Any, Any]:
        parts = estimates * np.exp(at)
        predicted = parts.sum(axis=1)
        off = np.log(predicted) - measured
        size = np.abs(off)
        huber = np.where(size <= _LARGE, off**2, _LARGE * (2 * size - _LARGE))
        robust = weights * np.where(size <= _LARGE, 1.0, _LARGE / np.maximum(size, _LARGE))
        jacobian = parts / predicted[:, None]
        gradient = jacobian.T @ (robust * off) + _RIDGE * at
        hessian = (jacobian * robust[:, None]).T @ jacobian + _RIDGE * np.eye(len(at))
        return float(weights @ huber + _RIDGE * at @ at), gradient, hessian

    current, gradient, hessian = loss(logs)
    for _ in range(_STEPS):
        step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
        tried = np.clip(logs - step, low, high)
        value, *slopes = loss(tried)
        if value < current:
            logs, current, damping = tried, value, damping / 3
            gradient, hessian = slopes
        else:
            damping *= 4
    return {name: float(f"{np.exp(at):.3g}") for name, at in zip(names, logs, strict=True)}


def ratio_error(times: Sequence[CandidateTimes], fitted: Coefficients) -> float:
    """By how many times the ratio of the two best predictions is off, typically.

    This is one standard deviation of its logarithm, taken from the median, which outliers move
    little.
    """
    off = []
    for known in times:
        strategy = need_strategy(known.target)
        for problem, measured in known.best.items():
            usual = known.usual(problem)
            predicted = strategy.default(problem, known.target, fitted=fitted).predictions
            best = [name for name in predicted if name in usual][:2]
            if len(best) == 2:
                said, took = (
                    [predicted[name].microseconds for name in best],
                    [measured[usual[name]] for name in best],
                )
                off.append(abs(np.log(said[1] / said[0]) - np.log(took[1] / took[0])))
    return float(f"{np.exp(1.4826 * np.median(off)):.3g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print the regret and write the coefficients."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.fit.fit_costs")
    parser.add_argument("log", metavar="LOG", nargs="+", help="directories of tvm-scatter tune")
    parser.add_argument("--bench", metavar="FILE", help="figures of tvm-scatter bench --all --json")
    parser.add_argument(
        "--held-out", metavar="LOG", action="append", default=[],
        help="other problems, to judge by; may be repeated",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="where the coefficients go")
    parsed = parser.parse_args(arguments)
    try:
        known = {path: measured_in_log(read_log(Path(path))) for path in parsed.log}
        target = next(iter(known.values())).target
        if parsed.bench:
            known[parsed.bench] = measured_in_bench(Path(parsed.bench), target)
        fitted = fit(list(known.values()))
        judged = {path: measured_in_log(read_log(Path(path))) for path in parsed.held_out}
        costs = {}
        for path, times in {**known, **judged}.items():
            found = regret(
                times,
                lambda problem: default_candidate(problem, times.target, fitted),  # noqa: B023
            )
            costs[Path(path).name] = str(found)
            print(f"{path}: {found}")
        if parsed.output:
            plain = {
                "comment": "Fitted to measurements by python -m tvm_scatter.tuning.fit.fit_costs.",
                "machine": need_strategy(target).backend.machine(target).name,
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


if __name__ == "__main__":
    sys.exit(main())
