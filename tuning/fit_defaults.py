"""Fit the default choice by rank and size to a log, and say what it costs.

::

    python -m tvm_scatter.tuning.fit_defaults LOG --held-out OTHER -o strategies/defaults/cuda.json
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

from tvm.target import Target

from tvm_scatter.defaults import Rule, holds
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.tuning.candidates import Candidate, need_strategy
from tvm_scatter.tuning.database import read_database
from tvm_scatter.tuning.decision_tree import Example, Region, grow
from tvm_scatter.tuning.results import candidate_of, results_in

#: More regions fit the log better and other problems no better.
_REGIONS = 28
_FEWEST = 3
_GAIN = 0.15
#: Knobs are named in a rule where they save so much of the time with default knobs.
_KNOBS_GAIN = 0.97
_COVERED = 0.6


@dataclass(frozen=True)
class Log:
    """Static problems and the microseconds of every measured candidate."""

    target: Target
    times: dict[ScatterProblem, dict[Candidate, float]]

    @staticmethod
    def read(folder: Path) -> Log:
        """Read a directory of records."""
        database = read_database(folder)
        times = {
            result.task.problem: {candidate_of(r): r.microseconds for r in result.ranked}
            for result in results_in(database)
            if result.task.problem.is_static and result.ranked
        }
        return Log(database.target(), times)

    def plain(self, problem: ScatterProblem) -> dict[str, Candidate]:
        """Each implementation that applies, with its default knobs."""
        applicable = need_strategy(self.target).applicable(problem, self.target)
        return {
            name: Candidate.of(name, implementation.config(problem, self.target))
            for name, implementation in applicable.items()
        }

    def examples(self) -> list[Example]:
        """What the tree learns from."""
        found = []
        for problem, times in self.times.items():
            plain = {n: times[c] for n, c in self.plain(problem).items() if c in times}
            best = min(plain.values(), default=0.0)
            if plain:
                found.append(Example(problem, {name: t / best for name, t in plain.items()}))
        return found


def fit(log: Log) -> list[Rule]:
    """Rules, tried in order, for the problems of a log."""
    regions = grow(log.examples(), _REGIONS, _FEWEST, _GAIN)
    rules = [rule for region in regions for rule in _rules(region, log)]
    # Where a region has no applicable choice, what was the best in the mean over all problems.
    everywhere = grow(log.examples(), 1, _FEWEST, _GAIN)[0]
    rules += [Rule(name, because="the best in the mean over all problems measured")
              for name in everywhere.order]  # fmt: skip
    return rules


def _rules(region: Region, log: Log) -> list[Rule]:
    rules = []
    left = region.examples
    for name in region.order:
        mine = [example for example in left if name in example.losses]
        left = [example for example in left if name not in example.losses]
        config = _knobs(name, mine, log)
        loss = geometric_mean(example.losses[name] for example in mine)
        because = f"{loss:.2f}x the best in the mean of {len(mine)} problems measured there"
        rules.append(Rule(name, region.conditions, region.only, config, because))
    return rules


def _knobs(name: str, examples: Sequence[Example], log: Log) -> dict[str, int]:
    """Knobs that are better for a region than the defaults, where enough of it was measured."""
    plain, ratios = {}, dict[tuple[tuple[str, int], ...], list[float]]()
    for example in examples:
        times = log.times[example.problem]
        plain = log.plain(example.problem)
        for candidate, microseconds in times.items():
            if candidate.implementation == name:
                ratio = microseconds / times[plain[name]]
                ratios.setdefault(candidate.config, []).append(ratio)
    needed = max(_COVERED * len(examples), _FEWEST)
    known = {knobs: geometric_mean(r) for knobs, r in ratios.items() if len(r) >= needed}
    best = min(known, key=known.__getitem__, default=())
    return dict(best) if best and known[best] < _KNOBS_GAIN else {}


def choose(rules: Sequence[Rule], problem: ScatterProblem, target: Target) -> Candidate:
    """What the rules choose for a static problem."""
    strategy = need_strategy(target)
    applicable = strategy.applicable(problem, target)
    for rule in rules:
        if rule.implementation in applicable and holds(rule, problem)[0]:
            implementation = applicable[rule.implementation]
            knobs = implementation.knobs(problem, target)
            valid = {n: v for n, v in rule.config.items() if v in knobs.get(n, ())}
            config = implementation.config(problem, target, valid)
            return Candidate.of(rule.implementation, config)
    raise ScatterError(f"fit_defaults: no rule takes [{problem}].")


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


def regret(log: Log, choice: Callable[[ScatterProblem], Candidate]) -> Regret:
    """What a default choice costs on the problems of a log."""
    losses: dict[str, float] = {}
    unknown = 0
    for problem, times in log.times.items():
        chosen = choice(problem)
        if chosen in times:
            losses[str(problem)] = times[chosen] / min(times.values())
        else:
            unknown += 1
    if not losses:
        raise ScatterError("fit_defaults: no default choice was measured.")
    worst = max(losses, key=losses.__getitem__)
    mean = geometric_mean(losses.values())
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
    parser.add_argument("--held-out", metavar="LOG", help="problems to judge by")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the rules go")
    parsed = parser.parse_args(arguments)
    try:
        log = Log.read(Path(parsed.log))
        rules = fit(log)
        logs = {"fitted": log}
        if parsed.held_out:
            logs["held out"] = Log.read(Path(parsed.held_out))
        costs = {}
        for name, each in logs.items():
            now = regret(each, lambda p, t=each.target: choose(rules, p, t))  # type: ignore[misc]
            costs[name] = str(now)
            print(f"{name}: {now}")
            before = regret(each, lambda p, t=each.target: _current(p, t))  # type: ignore[misc]
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


def _current(problem: ScatterProblem, target: Target) -> Candidate:
    selection = need_strategy(target).default(problem, target)
    return Candidate.of(selection.implementation.name, selection.config)


if __name__ == "__main__":
    sys.exit(main())
