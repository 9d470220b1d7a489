"""Fit the default choice by rank and size to measurements, and say what it costs.

::

    python -m tvm_scatter.tuning.fit.fit_defaults tuning/logs/h200 \
        --bench tuning/results/h200.json \
        --held-out tuning/results/held_out.tar.xz -o strategies/defaults/cuda.json

The rules are the leaves of a small tree over the problems of the log, those of the benchmark, and
random ones whose times a cost model predicts from the log. They are judged by a second log, of
problems that neither the fit nor the model has seen, or by some that are held out of the first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.default_rules import Rule
from tvm_scatter.tuning.space.candidates import Candidate, default_candidate
from tvm_scatter.tuning.space.grid import drawn
from tvm_scatter.tuning.store.database import Database
from tvm_scatter.tuning.store.packed import read_log

from .candidate_times import CandidateTimes, measured_in_bench, measured_in_log
from .predicted import Judge
from .rules import fit, fit_symbolic

#: Measured problems that all predicted ones together weigh as much as.
_WEIGHT = 2400.0
#: Seeds of the problems that a model judges for the fit, and of those that the fit is judged by.
_FITTED, _JUDGED = 31, 37
#: So many of the latter.
_JUDGES = 3000
#: The share of either that is in place: there the choices differ most.
_IN_PLACE = 0.5


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
        raise ScatterError("fit_defaults: no default choice was measured.")
    worst = max(losses, key=losses.__getitem__)
    mean = geometric_mean(losses.values())
    unknown = len(times.best) - len(losses)
    beyond = {ratio: sum(loss > ratio for loss in losses.values()) for ratio in (1.5, 2.0)}
    return Regret(mean, losses[worst], len(losses), unknown, worst, beyond)


def as_json(
    rules: Sequence[Rule], symbolic: Sequence[Rule], comment: str, costs: dict[str, str]
) -> str:
    """Rules as a file of :mod:`tvm_scatter.selection.default_rules`, a rule to a line."""
    head = f'  "comment": {json.dumps(comment)},\n  "regret": {json.dumps(costs)},\n'
    lists = {"symbolic": symbolic, "rules": rules}
    body = ",\n".join(f'  "{name}": [\n{_lines(each)}\n  ]' for name, each in lists.items())
    return "{\n" + head + body + "\n}\n"


def _lines(rules: Sequence[Rule]) -> str:
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
    return ",\n".join(lines)


def _fit_to_predicted(
    log: Database, known: CandidateTimes, count: int, unseen: Collection[ScatterProblem]
) -> tuple[list[Rule], list[Rule], CandidateTimes]:
    """Rules fitted to measured and predicted problems, and predicted ones to judge the rules by.

    The models that judge are not those that the rules are fitted to.
    """

    def plain(problem: ScatterProblem) -> Iterable[Candidate]:
        return known.plain(problem).values()

    teacher, other = Judge(log, known.best), Judge(log, known.best, seed=1)
    asked = [problem for problem in drawn(_FITTED, count, _IN_PLACE) if problem not in unseen]
    guessed = teacher.times(asked, plain, _WEIGHT / len(asked))
    unmeasured = teacher.times(known.best, plain)
    fitted = known.with_more(unmeasured).with_more(guessed)
    rules = fit(fitted, teacher)
    more = drawn(_JUDGED, _JUDGES, _IN_PLACE)
    more = [problem for problem in more if problem not in guessed.best]

    def judged(problem: ScatterProblem) -> Iterable[Candidate]:
        chosen = [default_candidate(problem, known.target, each) for each in (rules, None)]
        return dict.fromkeys([*plain(problem), *chosen])

    return rules, fit_symbolic(fitted), other.times(more, judged)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print the regret and write the rules."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.fit.fit_defaults")
    parser.add_argument("log", metavar="LOG", help="a directory of tvm-scatter tune")
    parser.add_argument("--bench", metavar="FILE", help="figures of tvm-scatter bench --all --json")
    parser.add_argument(
        "--held-out", metavar="LOG", action="append", default=[],
        help="other problems, to judge by; may be repeated",
    )  # fmt: skip
    parser.add_argument("--hold-out", type=int, default=60, metavar="N", help="else: some of LOG")
    parser.add_argument(
        "--predicted", type=int, default=100_000, metavar="N", help="problems that a model judges"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where the rules go")
    parsed = parser.parse_args(arguments)
    try:
        log = read_log(Path(parsed.log))
        known = measured_in_log(log)
        held_out = {path: measured_in_log(read_log(Path(path))) for path in parsed.held_out}
        if not held_out:
            known, held_out["held out"] = known.split(parsed.hold_out)
        if parsed.bench:
            known = known.with_more(measured_in_bench(Path(parsed.bench), known.target))
        judged = {"fitted": known, **held_out}
        if parsed.predicted:
            unseen = {problem for times in held_out.values() for problem in times.best}
            rules, symbolic, judged["predicted"] = _fit_to_predicted(
                log, known, parsed.predicted, unseen
            )
        else:
            rules, symbolic = fit(known), fit_symbolic(known)
        costs = {}
        for name, times in judged.items():
            found = regret(times, lambda p: default_candidate(p, known.target, rules))
            costs[name] = str(found)
            print(f"{name}: {found}")
            before = regret(times, lambda p: default_candidate(p, known.target))
            print(f"{name}, rules in force: {before}")
    except ScatterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if parsed.output:
        comment = (
            "Tried in order, the first that holds decides. Fitted to measurements by "
            "python -m tvm_scatter.tuning.fit.fit_defaults."
        )
        Path(parsed.output).write_text(as_json(rules, symbolic, comment, costs), encoding="utf-8")
        print(f"{len(rules)} rules and {len(symbolic)} for symbolic sizes in {parsed.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
