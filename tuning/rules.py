"""From measured times to rules: the leaves of a small tree, with knobs where they pay."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

from tvm_scatter.defaults import Rule
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.tuning.candidates import need_strategy
from tvm_scatter.tuning.decision_tree import Examples, Region, grow, order
from tvm_scatter.tuning.times import Times

_REGIONS = 400
_FEWEST = 0.4
_GAIN = 0.05
#: What an implementation that applies is taken to cost where it was not measured: the tuner passes
#: over those that must take many times the best.
_NOT_MEASURED = 8.0
#: A rule names knobs where they save so much over the default ones ...
_KNOBS_GAIN = 0.95
#: ... and were measured for so many of the problems.
_COVERED = 0.6


def fit(times: Times) -> list[Rule]:
    """Rules, tried in order, that choose well for measured problems."""
    problems = list(times.best)
    names = list(need_strategy(times.target).implementations)
    weights = np.array([times.weight.get(problem, 1.0) for problem in problems])
    examples = Examples(problems, names, _losses(times, problems, names), weights)
    rules = []
    for region in grow(examples, _REGIONS, _FEWEST, _GAIN):
        rules += _rules(region, examples, times)
    # Where no region's choice applies, what is the best in the mean over all problems; last, for
    # problems unlike any that was measured, the order of the table.
    mean = order(Region(np.arange(len(problems))), examples)
    rules += [Rule(name, because="the best in the mean over all problems") for name in mean]
    rest = [name for name in names if name not in mean]
    return rules + [Rule(name, because="nothing like it was measured") for name in rest]


def _losses(
    times: Times, problems: Sequence[ScatterProblem], names: Sequence[str]
) -> np.ndarray[Any, Any]:
    """The time of each implementation with default knobs over the best of these."""
    losses = np.full((len(problems), len(names)), np.nan)
    for row, problem in enumerate(problems):
        plain, measured = times.plain(problem), times.best[problem]
        known = dict[str, float]()
        for candidate, microseconds in measured.items():
            name = candidate.implementation
            known[name] = min(microseconds, known.get(name, microseconds))
        # With other knobs than the default ones only where those were not measured.
        known |= {name: measured[c] for name, c in plain.items() if c in measured}
        best = min(known.values(), default=1.0)
        for name in plain:
            loss = known[name] / best if name in known else _NOT_MEASURED
            losses[row, names.index(name)] = loss
    return losses


def _rules(region: Region, examples: Examples, times: Times) -> list[Rule]:
    rules, left = [], region.members
    only = {name: examples.values(name, set(texts)) for name, texts in region.only}
    for name in order(region, examples):
        column = examples.names.index(name)
        takes = np.isfinite(examples.penalty[left, column])
        mine, left = left[takes], left[~takes]
        problems = [examples.problems[i] for i in mine]
        because = _because(name, problems, times)
        config = _knobs(name, problems, times)
        rules.append(Rule(name, region.conditions, only, config, because))
    return rules


def _because(name: str, problems: Sequence[ScatterProblem], times: Times) -> str:
    losses = []
    for problem in problems:
        measured, plain = times.best[problem], times.plain(problem)
        if plain[name] in measured:
            known = [measured[c] for c in plain.values() if c in measured]
            losses.append(measured[plain[name]] / min(known))
    if not losses:
        return "nothing else was measured there"
    mean = geometric_mean(losses)
    count = f"{len(losses)} problems measured or predicted there"
    return f"{mean:.2f}x the fastest in the mean of {count}"


def _knobs(name: str, problems: Sequence[ScatterProblem], times: Times) -> dict[str, int]:
    """Knobs that are better for a region than the defaults, where enough of it was measured."""
    ratios: dict[tuple[tuple[str, int], ...], list[float]] = {}
    for problem in problems:
        measured, plain = times.best[problem], times.plain(problem)[name]
        for candidate, microseconds in measured.items():
            if candidate.implementation == name and plain in measured:
                ratio = microseconds / measured[plain]
                ratios.setdefault(candidate.config, []).append(ratio)
    needed = max(_COVERED * len(problems), 2)
    known = {knobs: geometric_mean(r) for knobs, r in ratios.items() if len(r) >= needed}
    best = min(known, key=known.__getitem__, default=())
    return dict(best) if best and known[best] < _KNOBS_GAIN else {}
