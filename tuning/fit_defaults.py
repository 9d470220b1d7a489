"""Fit the default choice by rank and size to measurements, and say what it costs.

::

    python -m tvm_scatter.tuning.fit_defaults tuning/logs/h200 --bench tuning/results/h200.json \
        --held-out tuning/results/held_out -o strategies/defaults/cuda.json

The rules are the leaves of a small tree over the problems of the log, those of the benchmark, and
random ones whose times a cost model predicts from the log. They are judged by a second log, of
problems that neither the fit nor the model has seen, or by some that are held out of the first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tvm_scatter.defaults import Rule
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.tuning.candidates import Candidate, default_candidate
from tvm_scatter.tuning.database import read_database
from tvm_scatter.tuning.grid import drawn
from tvm_scatter.tuning.predicted import learn, predicted
from tvm_scatter.tuning.rules import fit
from tvm_scatter.tuning.times import Times, measured_in_bench, measured_in_log

#: Measured problems that all predicted ones together weigh as much as.
_WEIGHT = 600.0


@dataclass(frozen=True)
class Regret:
    """How many times the best candidate the default takes.

    Attributes
    ----------
    mean, worst : float
        Geometric mean and maximum.
    problems : int
        Those for which the default choice was measured.
    unknown : int
        Those for which it was not.
    """

    mean: float
    worst: float
    problems: int
    unknown: int
    worst_problem: str

    def __str__(self) -> str:
        text = f"{self.mean:.3f}x the best in the geometric mean of {self.problems} problems"
        text += f", {self.worst:.2f}x at worst ({self.worst_problem})"
        return text + (f"; {self.unknown} choices not measured" if self.unknown else "")


def regret(times: Times, choice: Callable[[ScatterProblem], Candidate]) -> Regret:
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
        raise ScatterError("fit_defaults: no default choice was measured.")
    worst = max(losses, key=losses.__getitem__)
    mean = geometric_mean(losses.values())
    unknown = len(times.best) - len(losses)
    return Regret(mean, losses[worst], len(losses), unknown, worst)


def as_json(rules: Sequence[Rule], comment: str, costs: dict[str, str]) -> str:
    """Rules as a file of :mod:`tvm_scatter.defaults`, a rule to a line."""
    lines = []
    for rule in rules:
        plain: dict[str, Any] = {"implementation": rule.implementation}
        if rule.conditions:
            plain["conditions"] = [list(condition) for condition in rule.conditions]
        if rule.only:
            plain["only"] = {name: list(values) for name, values in rule.only.items()}
        if rule.config:
            plain["config"] = dict(rule.config)
        plain["because"] = rule.because
        lines.append("    " + json.dumps(plain))
    head = f'  "comment": {json.dumps(comment)},\n  "regret": {json.dumps(costs)},\n'
    return "{\n" + head + '  "rules": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print the regret and write the rules."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.fit_defaults")
    parser.add_argument("log", metavar="LOG", help="a directory of tvm-scatter tune")
    parser.add_argument("--bench", metavar="FILE", help="figures of tvm-scatter bench --all --json")
    parser.add_argument("--held-out", metavar="LOG", help="other problems, to judge by")
    parser.add_argument("--hold-out", type=int, default=60, metavar="N", help="else: some of LOG")
    parser.add_argument(
        "--predicted", type=int, default=9000, metavar="N", help="problems that a model judges"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where the rules go")
    parsed = parser.parse_args(arguments)
    try:
        log = read_database(Path(parsed.log))
        whole = measured_in_log(log)
        if parsed.held_out:
            known, held_out = whole, measured_in_log(read_database(Path(parsed.held_out)))
        else:
            known, held_out = whole.split(parsed.hold_out)
        if parsed.bench:
            known = known.with_more(measured_in_bench(Path(parsed.bench), whole.target))
        fitted = known
        if parsed.predicted:
            model = learn(log)
            asked = drawn(31, parsed.predicted)
            guessed = predicted(model, whole.target, asked, _WEIGHT / len(asked))
            unmeasured = predicted(model, whole.target, known.best)
            fitted = known.with_more(unmeasured).with_more(guessed)
        rules = fit(fitted)
        costs = {}
        for name, times in {"fitted": known, "held out": held_out}.items():
            found = regret(times, lambda p: default_candidate(p, whole.target, rules))
            costs[name] = str(found)
            print(f"{name}: {found}")
            before = regret(times, lambda p: default_candidate(p, whole.target))
            print(f"{name}, rules in force: {before}")
    except ScatterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if parsed.output:
        comment = (
            "Tried in order, the first that holds decides. Fitted to measurements by "
            "python -m tvm_scatter.tuning.fit_defaults."
        )
        Path(parsed.output).write_text(as_json(rules, comment, costs), encoding="utf-8")
        print(f"{len(rules)} rules in {parsed.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
