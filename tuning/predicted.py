"""Times that a cost model predicts for problems between those that were measured.

A tree that sees measured problems only has few of them in each of its regions; the model has
learned from all of them what a size is worth. It also knows the candidates of a measured problem
that were not measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from statistics import fmean

import numpy as np
from tvm.target import Target

from tvm_scatter.problem import ScatterProblem
from tvm_scatter.records import typical
from tvm_scatter.tuning.candidates import Candidate, candidates
from tvm_scatter.tuning.cost_model import CostModel
from tvm_scatter.tuning.database import Database
from tvm_scatter.tuning.features import features
from tvm_scatter.tuning.times import Times
from tvm_scatter.tuning.tune import DISTRIBUTIONS

#: More and deeper trees than a search can wait for.
_TREES = {"max_depth": 8, "eta": 0.04, "colsample_bytree": 0.5, "nthread": 1}
_ROUNDS = 1000


def learn(database: Database) -> CostModel:
    """A model of all times of a log."""
    target = database.target()
    model = CostModel(_ROUNDS, **_TREES)
    for problem, decision, seconds in database.records():
        if problem.is_static:
            candidate = Candidate.of(decision.implementation, decision.config)
            row = features(problem, candidate, decision.circumstances["distribution"], target)
            model.add(row, typical(seconds))
    return model


def predicted(
    model: CostModel, target: Target, problems: Iterable[ScatterProblem], weight: float = 1.0
) -> Times:
    """The times of every candidate of static problems, as a model expects them.

    Parameters
    ----------
    weight : float
        How much such a problem counts, against one that was measured.
    """
    asked = [
        (problem, candidate, distribution)
        for problem in problems
        for candidate in candidates(problem, target)
        for distribution in (("permutation",) if problem.unique else DISTRIBUTIONS)
    ]
    logarithms = model.predict([features(*each, target) for each in asked])
    times = Times(target)
    if logarithms is None:
        return times
    known = zip(asked, map(float, logarithms), strict=True)
    for (problem, candidate), entries in groupby(known, key=lambda entry: entry[0][:2]):
        mean = fmean(logarithm for _, logarithm in entries)
        times.best.setdefault(problem, {})[candidate] = float(np.exp(mean))
        times.weight[problem] = weight
    return times
