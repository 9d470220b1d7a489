"""Times by problem and candidate: from a tuning log, from the benchmark, or predicted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy
from tvm_scatter.tuning.store.database import Database
from tvm_scatter.tuning.store.results import candidate_of, results_in


@dataclass(frozen=True)
class CandidateTimes:
    """Times on one target.

    Attributes
    ----------
    best : dict
        For each static problem, the microseconds of its candidates, all distributions together.
    weight : dict
        How much a problem counts; 1 where it is not here.
    """

    target: Target
    best: dict[ScatterProblem, dict[Candidate, float]] = field(default_factory=dict)
    weight: dict[ScatterProblem, float] = field(default_factory=dict)

    def split(self, count: int, seed: int = 0) -> tuple[CandidateTimes, CandidateTimes]:
        """Two parts: all but ``count`` problems drawn at random, and those.

        Raises
        ------
        ScatterError
            If there are not more problems than that.
        """
        if not 0 < count < len(self.best):
            raise ScatterError(
                f"fit_defaults: of {len(self.best)} problems {count} cannot be held out."
            )
        problems = sorted(self.best, key=str)
        drawn = set(random.Random(seed).sample(problems, count))
        return self._part([p for p in problems if p not in drawn]), self._part(
            sorted(drawn, key=str)
        )

    def _part(self, problems: Sequence[ScatterProblem]) -> CandidateTimes:
        return CandidateTimes(self.target, {p: self.best[p] for p in problems}, self.weight)

    def with_more(self, other: CandidateTimes) -> CandidateTimes:
        """The times of both. Where both hold a candidate, this one counts."""
        weight = {**other.weight, **self.weight}
        best = dict(other.best)
        for problem, measured in self.best.items():
            best[problem] = {**best.get(problem, {}), **measured}
        return CandidateTimes(self.target, best, weight)

    def plain(self, problem: ScatterProblem) -> dict[str, Candidate]:
        """Each implementation that applies, with its default knobs."""
        return _plain(problem, self.target)


# A fit asks for every problem of a region again and again.
@lru_cache(maxsize=8192)
def _plain(problem: ScatterProblem, target: Target) -> dict[str, Candidate]:
    applicable = need_strategy(target).applicable(problem, target)
    return {
        name: Candidate.of(name, implementation.config(problem, target))
        for name, implementation in applicable.items()
    }


def measured_in_log(database: Database) -> CandidateTimes:
    """The static problems of a log."""
    times = CandidateTimes(database.target())
    for result in results_in(database):
        if result.task.problem.is_static:
            ranked = {candidate_of(record): record.microseconds for record in result.ranked}
            times.best[result.task.problem] = ranked
    return times


def measured_in_bench(path: Path, target: Target) -> CandidateTimes:
    """The workloads of a report of ``tvm-scatter bench --all``, with default knobs."""
    from tvm_scatter.tuning.bench.bench import Report
    from tvm_scatter.tuning.space.workloads import WORKLOADS

    # Each stands for the real models that pose it, so each may have a rule of its own.
    times = CandidateTimes(target, weight={workload.problem(): 3.0 for workload in WORKLOADS})
    rows = {row.workload: row for row in Report.load(path).rows}
    for workload in WORKLOADS:
        row, problem = rows.get(workload.name), workload.problem()
        if row is None:
            continue
        for name, candidate in times.plain(problem).items():
            timed = row.others.get(f"ours: {name}")
            if timed is not None:
                # Workloads that differ only in how indices repeat are one problem: the mean.
                known = times.best.setdefault(problem, {})
                before = known.get(candidate)
                mean = timed.device if before is None else (before * timed.device) ** 0.5
                known[candidate] = mean
    return times
