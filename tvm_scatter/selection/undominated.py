"""Of several ways to compute a problem those that some sizes need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

import numpy as np

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .arithmetic import choose
from .cost import PROHIBITIVE, Predict, Prediction

#: So many times the least time may be taken at any sizes. Each way is code to compile.
_TOLERATED = 1.1
#: Values of a symbolic size, and how many combinations of them are looked at.
VALUES = (1, 8, 64, 512, 4096, 1 << 15, 1 << 18, 1 << 21)
_LOOKED_AT = 128
#: The most elements of a tensor that sizes may make.
MOST_ELEMENTS = 1 << 34


def for_sizes_taken(predict: Predict, takes: Callable[[Sizes], Any]) -> Predict:
    """Predicts the same for sizes that are taken, and far too long for others."""

    def predicted(sizes: Sizes) -> Prediction:
        found = predict(sizes)
        factor = choose(takes(sizes), 1.0, PROHIBITIVE)
        return Prediction(found.microseconds * factor, found.terms)

    return predicted


def undominated(
    problem: ScatterProblem, ways: Mapping[str, Predict], partial: Collection[str] = ()
) -> list[str]:
    """The names of those that are needed to lose little at any sizes, the most useful first.

    Parameters
    ----------
    partial : collection of str
        Those that do not take all sizes. There is always one that does.
    """
    looked_at = _looked_at(problem)
    sizes = Sizes.together(looked_at)
    # A way whose time no size changes has one time for all.
    predicted = [predict(sizes).microseconds for predict in ways.values()]
    times = np.array([np.broadcast_to(time, len(looked_at)) for time in predicted])
    losses = times / times.min(axis=0)
    lost_by = np.log(losses).sum(axis=1)
    chosen = [int(lost_by.argmin())]
    while (lost := losses[chosen].min(axis=0)).max() > _TOLERATED:
        chosen.append(int(times[:, lost.argmax()].argmin()))
    names = list(ways)
    if all(names[place] in partial for place in chosen):
        whole = [place for place, name in enumerate(names) if name not in partial]
        chosen.append(min(whole, key=lost_by.__getitem__))
    return [names[place] for place in chosen]


def _looked_at(problem: ScatterProblem) -> list[Sizes]:
    """Sizes all over the range, the same ones every time."""
    random, found = Random(0), []
    for _ in range(_LOOKED_AT):
        values = {symbol: random.choice(VALUES) for symbol in problem.symbols}
        sizes = Sizes.of(problem, values)
        if max(sizes.data_size, sizes.update_size) <= MOST_ELEMENTS:
            found.append(sizes)
    return found or [Sizes.of(problem, dict.fromkeys(problem.symbols, 1))]
