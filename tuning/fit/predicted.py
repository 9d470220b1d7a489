"""Times that a cost model predicts where nothing was measured.

A region of the tree holds few measured problems. The model has learned from all of them what a size
is worth, so it fills the regions with predicted ones. It also predicts those candidates of a
measured problem that were not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import typical
from tvm_scatter.tuning.search.cost_model import CostModel
from tvm_scatter.tuning.search.features import features, more_bytes, moved_bytes, rows
from tvm_scatter.tuning.search.tune import DISTRIBUTIONS
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy
from tvm_scatter.tuning.store.database import Database

from .candidate_times import CandidateTimes

#: Deeper trees than a search can wait for, ...
_TREES = {"max_depth": 8, "eta": 0.08, "colsample_bytree": 0.5, "subsample": 0.8, "nthread": 1}
_ROUNDS = 500
#: ... and several models, whose mean strays less than each of them.
_MODELS = 4
#: A model learns how many times a floor a candidate takes: the microseconds of a launch or two, ...
_LAUNCHES = 4.0
#: ... and the bytes that must move or that its implementation moves besides, of which so many take
#: one: what a log has few times of, such as few updates in a large output, is told by them.
_BYTES = 3.5e6
#: Rows that a model is asked for at once.
_CHUNK = 200_000

#: Which candidates of a problem are asked for.
Space = Callable[[ScatterProblem], Iterable[Candidate]]


class Judge:
    """Predicts times for problems that a log does not hold.

    Parameters
    ----------
    database : Database
        The models learn the times in it.
    problems : collection of ScatterProblem
        The problems of the log to learn from; they are static.
    seed : int
        Judges of different seeds agree only as far as the log determines the times.
    """

    def __init__(
        self, database: Database, problems: Collection[ScatterProblem], seed: int = 0
    ) -> None:
        self.target: Target = database.target()
        self._implementations = need_strategy(self.target).implementations
        #: Implementations that the log holds times of; nothing is known of others.
        self.known: set[str] = set()
        self._models = [
            CostModel(_ROUNDS, **_TREES, seed=_MODELS * seed + i) for i in range(_MODELS)
        ]
        for problem, decision, seconds in database.records():
            # A log can be older than the removal of an implementation.
            if problem in problems and decision.implementation in self._implementations:
                candidate = Candidate.of(decision.implementation, decision.config)
                self.known.add(candidate.implementation)
                distribution = decision.circumstances["distribution"]
                row = features(problem, candidate, distribution, self.target)
                for model in self._models:
                    model.add(row, typical(seconds) / self._floor(problem, candidate))

    def times(
        self, problems: Iterable[ScatterProblem], space: Space, weight: float = 1.0
    ) -> CandidateTimes:
        """Predicted times of candidates of static problems.

        Parameters
        ----------
        weight : float
            How much a predicted problem counts; a measured one counts 1.
        """
        times = CandidateTimes(self.target)
        asked: list[tuple[ScatterProblem, list[Candidate], np.ndarray]] = []
        waiting = 0
        for problem in problems:
            offered = [c for c in space(problem) if c.implementation in self.known]
            if offered:
                described = rows(problem, offered, _distributions(problem), self.target)
                asked.append((problem, offered, described))
                waiting += len(described)
            if waiting >= _CHUNK:
                self._answer(asked, times)
                asked, waiting = [], 0
        self._answer(asked, times)
        times.weight.update(dict.fromkeys(times.best, weight))
        return times

    def _answer(
        self,
        asked: Sequence[tuple[ScatterProblem, list[Candidate], np.ndarray]],
        times: CandidateTimes,
    ) -> None:
        if not asked:
            return
        described = np.concatenate([part for _, _, part in asked])
        answers = [model.predict(described) for model in self._models]
        known = [answer for answer in answers if answer is not None]
        if not known:
            return
        mean, begin = np.mean(known, axis=0), 0
        for problem, offered, part in asked:
            ratios = np.exp(mean[begin : begin + len(part)].reshape(len(offered), -1).mean(axis=1))
            begin += len(part)
            times.best[problem] = {
                candidate: float(ratio) * self._floor(problem, candidate)
                for candidate, ratio in zip(offered, ratios, strict=True)
            }

    def _floor(self, problem: ScatterProblem, candidate: Candidate) -> float:
        """A lower bound, in microseconds, on the time of a candidate."""
        implementation = self._implementations[candidate.implementation]
        moved = moved_bytes(problem) + more_bytes(problem, implementation)
        return _LAUNCHES + moved / _BYTES


def _distributions(problem: ScatterProblem) -> tuple[str, ...]:
    return ("permutation",) if problem.unique else DISTRIBUTIONS
