"""Times by problem and candidate, from a tuning log."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import Decision, ranking, typical
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy
from tvm_scatter.tuning.store.database import Database
from tvm_scatter.tuning.store.results import candidate_of


@dataclass(frozen=True)
class CandidateTimes:
    """Times of the static problems of a log, in microseconds.

    Attributes
    ----------
    best : dict
        For each problem the times of its candidates, all distributions together.
    each : dict
        For each problem and candidate the time by distribution of the indices.
    weight : float
        How much a problem counts in a fit.
    """

    target: Target
    best: dict[ScatterProblem, dict[Candidate, float]] = field(default_factory=dict)
    each: dict[ScatterProblem, dict[Candidate, dict[str, float]]] = field(default_factory=dict)
    weight: float = 1.0

    def usual(self, problem: ScatterProblem) -> dict[str, Candidate]:
        """For each implementation the candidate that stands for it.

        It has the default knobs, or the best measured ones if these were not measured.
        """
        strategy, measured = need_strategy(self.target), self.best[problem]
        found: dict[str, Candidate] = {}
        for name, implementation in strategy.applicable(problem, self.target).items():
            default = Candidate.of(name, implementation.config(problem, self.target))
            others = [each for each in measured if each.implementation == name]
            if default in measured:
                found[name] = default
            elif others:
                found[name] = min(others, key=measured.__getitem__)
        return found


def measured_in_log(database: Database) -> CandidateTimes:
    """The static problems of a log."""
    times = CandidateTimes(database.target())
    timed: dict[ScatterProblem, list[tuple[Decision, float]]] = {}
    for problem, decision, seconds in database.records():
        if problem.is_static:
            timed.setdefault(problem, []).append((decision, typical(seconds)))
    for problem, known in timed.items():
        ranked = {candidate_of(record): record.microseconds for record in ranking(known)}
        times.best[problem] = ranked
        by_candidate = times.each.setdefault(problem, {})
        for decision, microseconds in known:
            candidate = Candidate.of(decision.implementation, decision.config)
            distribution = decision.circumstances["distribution"]
            by_candidate.setdefault(candidate, {})[distribution] = microseconds
    return times


#: A workload of the benchmark stands for the real models that pose it.
_BENCH_WEIGHT = 40.0


def measured_in_bench(path: Path, target: Target) -> CandidateTimes:
    """The workloads of a report of ``tvm-scatter bench --all``, with default knobs."""
    from tvm_scatter.tuning.bench.bench import Report
    from tvm_scatter.tuning.space.workloads import WORKLOADS

    times = CandidateTimes(target, weight=_BENCH_WEIGHT)
    report, strategy = Report.load(path), need_strategy(target)
    rows = {row.workload: row for row in report.rows}
    for workload in WORKLOADS:
        row = rows.get(workload.name)
        if row is None:
            continue
        problem = workload.scaled(int(report.machine.get("scale", 1))).problem()
        for name, implementation in strategy.applicable(problem, target).items():
            timed = row.others.get(f"ours: {name}")
            if timed is None:
                continue
            candidate = Candidate.of(name, implementation.config(problem, target))
            by_distribution = times.each.setdefault(problem, {}).setdefault(candidate, {})
            by_distribution[workload.distribution] = timed.device
            # Workloads that differ only in how indices repeat are one problem: the mean counts.
            times.best.setdefault(problem, {})[candidate] = geometric_mean(by_distribution.values())
    return times
