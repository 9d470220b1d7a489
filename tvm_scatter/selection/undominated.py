"""Of several ways to compute a problem those that some sizes need."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .cost import Predict

#: So many times the least time may be taken at any sizes. Each way is code to compile.
_TOLERATED = 1.1
#: Values of a symbolic size, and how many combinations of them are looked at.
_VALUES = (1, 8, 64, 512, 4096, 1 << 15, 1 << 18, 1 << 21)
_LOOKED_AT = 128
#: The most elements of a tensor that sizes may make.
_MOST = 1 << 34


def undominated(problem: ScatterProblem, ways: Mapping[str, Predict]) -> list[str]:
    """The names of those that are needed to lose little at any sizes, the most useful first."""
    looked_at = _looked_at(problem)
    sizes = Sizes.together(looked_at)
    # A way whose time no size changes has one time for all.
    predicted = [predict(sizes).microseconds for predict in ways.values()]
    times = np.array([np.broadcast_to(time, len(looked_at)) for time in predicted])
    losses = times / times.min(axis=0)
    chosen = [int(np.log(losses).sum(axis=1).argmin())]
    while (lost := losses[chosen].min(axis=0)).max() > _TOLERATED:
        chosen.append(int(times[:, lost.argmax()].argmin()))
    return [list(ways)[place] for place in chosen]


def _looked_at(problem: ScatterProblem) -> list[Sizes]:
    """Sizes all over the range, the same ones every time."""
    random, found = Random(0), []
    for _ in range(_LOOKED_AT):
        values = {symbol: random.choice(_VALUES) for symbol in problem.symbols}
        sizes = Sizes.of(problem, values)
        if max(sizes.data_size, sizes.update_size) <= _MOST:
            found.append(sizes)
    return found or [Sizes.of(problem, dict.fromkeys(problem.symbols, 1))]
