"""From measured times to rules: the leaves of a small tree, with knobs where they pay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import numpy as np

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.default_rules import EXTENT_FEATURES, Rule
from tvm_scatter.tuning.space.candidates import Candidate, candidates, need_strategy

from .candidate_times import CandidateTimes
from .decision_tree import Examples, Region, order
from .mended_tree import grow
from .predicted import Judge

#: The tree is grown until nothing is gained, and then pruned to regions that are worth a line.
_REGIONS = 4000
_FEWEST = 0.05
_GAIN = 0.01
_PRICE = 0.2
#: Rules for symbolic sizes are branches at run time.
_SYMBOLIC_REGIONS = 32
#: What an implementation that applies is taken to cost where it was not measured: the tuner passes
#: over those that must take many times the best.
_NOT_MEASURED = 8.0
#: A rule names knobs where they save so much over the default ones ...
_KNOBS_GAIN = 0.95
#: ... and were measured for so many of the problems.
_COVERED = 0.6
#: Problems of a region for which a judge is asked what other knobs cost.
_ASKED = 12


def fit(times: CandidateTimes, judge: Judge | None = None) -> list[Rule]:
    """Rules, tried in order, that choose well for measured problems.

    Parameters
    ----------
    judge : Judge, optional
        Predicts what knobs cost where they were not measured.
    """
    examples = _examples(times)
    rules = []
    for region in grow(examples, _REGIONS, _FEWEST, _GAIN, _PRICE):
        rules += _rules(region, examples, times, judge)
    return rules + _last(examples)


def fit_symbolic(times: CandidateTimes) -> list[Rule]:
    """A short list of rules for sizes that are known at run time only.

    Each rule may become a branch in the compiled function.
    """
    examples = _examples(times)
    names = [_takes_symbolic(problem, times) for problem in examples.problems]
    takes = np.array([[name in each for name in examples.names] for each in names])
    losses = np.where(takes, examples.losses, np.nan)
    losses /= np.nanmin(losses, axis=1, keepdims=True)
    sizes = (*EXTENT_FEATURES, "itemsize", "collision")
    coarse = Examples(examples.problems, examples.names, losses, examples.weights, sizes)
    rules = []
    for region in grow(coarse, _SYMBOLIC_REGIONS, _FEWEST, _GAIN, _PRICE):
        for rule in _rules(region, coarse, times, None):
            rules.append(replace(rule, config={}))
    return rules + _last(coarse)


def _examples(times: CandidateTimes) -> Examples:
    problems = list(times.best)
    names = list(need_strategy(times.target).implementations)
    weights = np.array([times.weight.get(problem, 1.0) for problem in problems])
    return Examples(problems, names, _losses(times, problems, names), weights)


def _last(examples: Examples) -> list[Rule]:
    """The rules for where no region's choice applies: the best in the mean over all problems.

    Problems unlike any that was measured are left to the order of the table.
    """
    mean = [examples.names[i] for i in order(np.arange(len(examples.problems)), examples)]
    rest = [name for name in examples.names if name not in mean]
    return [Rule(name, because="the best in the mean over all problems") for name in mean] + [
        Rule(name, because="nothing like it was measured") for name in rest
    ]


def _takes_symbolic(problem: ScatterProblem, times: CandidateTimes) -> Collection[str]:
    """The implementations that take the problem with symbolic numbers of updates and places."""
    unknown = tuple(SymbolicSize(1, (f"m{i}",)) for i in range(len(problem.extents)))
    symbolic = replace(problem, count=SymbolicSize(1, ("n",)), extents=unknown)
    return need_strategy(times.target).applicable(symbolic, times.target)


def _losses(
    times: CandidateTimes, problems: Sequence[ScatterProblem], names: Sequence[str]
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


def _rules(
    region: Region, examples: Examples, times: CandidateTimes, judge: Judge | None
) -> list[Rule]:
    rules, left = [], region.members
    only = {name: examples.values(name, set(texts)) for name, texts in region.only}
    for column in order(region.members, examples):
        name = examples.names[column]
        takes = np.isfinite(examples.penalty[left, column])
        mine, left = left[takes], left[~takes]
        problems = [examples.problems[i] for i in mine]
        because = _because(name, problems, times)
        config = _knobs(name, *_with_knobs(name, problems, times, judge))
        rules.append(Rule(name, region.conditions, only, config, because))
    return rules


def _because(name: str, problems: Sequence[ScatterProblem], times: CandidateTimes) -> str:
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


def _with_knobs(
    name: str, problems: Sequence[ScatterProblem], times: CandidateTimes, judge: Judge | None
) -> tuple[Sequence[ScatterProblem], CandidateTimes]:
    """Some problems, and times of all knobs of an implementation as a judge expects them."""
    if judge is None:
        return problems, times
    some = problems[:: -(-len(problems) // _ASKED)]

    def space(problem: ScatterProblem) -> list[Candidate]:
        return [c for c in candidates(problem, times.target) if c.implementation == name]

    part = CandidateTimes(times.target, {problem: times.best[problem] for problem in some})
    return some, part.with_more(judge.times(some, space))


def _knobs(name: str, problems: Sequence[ScatterProblem], times: CandidateTimes) -> dict[str, int]:
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
