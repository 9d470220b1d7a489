"""Which candidates to measure next: all where there are few, else the promising ones."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.tuning.space.candidates import Candidate

from .cost_model import CostModel
from .features import features

#: Of a round, the share that is drawn at random, so that the model learns of what it dislikes.
_EXPLORED = 0.25
#: So many measurements are enough to pass a whole implementation over, unseen, ...
_EXPERIENCED = 300
#: ... if it is predicted to take so many times the best: a million updates on one thread.
_ABSURD = 30.0
#: A candidate predicted to take so many times the best is not worth its compilation.
_HOPELESS = 8.0


def next_round(
    problem: ScatterProblem,
    target: Target,
    space: Sequence[Candidate],
    done: Collection[Candidate],
    model: CostModel,
    distribution: str,
    size: int,
    seed: int = 0,
) -> list[Candidate]:
    """The next candidates to measure, at most ``size``; none if all are done.

    The defaults of every implementation come first.
    """
    left = [candidate for candidate in space if candidate not in done]
    if len(left) <= size:
        return left
    seen = {candidate.implementation for candidate in done}
    first = []
    for candidate in left:
        if candidate.implementation not in seen:
            seen.add(candidate.implementation)
            first.append(candidate)
    if len(model) >= _EXPERIENCED:
        first = _worth_a_look(problem, target, first, space, model, distribution)
    if first:
        return first[:size]
    generator = random.Random(f"{problem} {len(done)} {seed}")
    rows = [features(problem, candidate, distribution, target) for candidate in left]
    predicted = model.predict(rows)
    if predicted is None:
        return generator.sample(left, size)
    order = sorted(range(len(left)), key=lambda i: float(predicted[i]))
    chosen = order[: max(1, round(size * (1 - _EXPLORED)))]
    limit = float(predicted[order[0]]) + math.log(_HOPELESS)
    rest = [i for i in order[len(chosen) :] if float(predicted[i]) <= limit]
    chosen += generator.sample(rest, min(size - len(chosen), len(rest)))
    return [left[i] for i in chosen]


def _worth_a_look(
    problem: ScatterProblem,
    target: Target,
    first: Sequence[Candidate],
    space: Sequence[Candidate],
    model: CostModel,
    distribution: str,
) -> list[Candidate]:
    """Those of ``first`` that may come near the best of the space."""
    rows = [features(problem, candidate, distribution, target) for candidate in space]
    predicted = model.predict(rows)
    assert predicted is not None
    limit = float(predicted.min()) + math.log(_ABSURD)
    times = dict(zip(space, predicted, strict=True))
    return [candidate for candidate in first if float(times[candidate]) <= limit]
