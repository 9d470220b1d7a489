"""Times by problem and candidate, from a tuning log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import Decision, ranking, typical
from tvm_scatter.tuning.bench import reports
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy
from tvm_scatter.tuning.space.workloads import WORKLOADS
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
    every : bool
        Whether a fit is made to all candidates, and not only to the one that stands for each
        implementation.
    """

    target: Target
    best: dict[ScatterProblem, dict[Candidate, float]] = field(default_factory=dict)
    each: dict[ScatterProblem, dict[Candidate, dict[str, float]]] = field(default_factory=dict)
    weight: float = 1.0
    every: bool = False

    def to_fit(self, problem: ScatterProblem) -> Iterable[Candidate]:
        """The candidates that a fit is made to."""
        return self.each[problem] if self.every else self.usual(problem).values()

    def usual(self, problem: ScatterProblem) -> dict[str, Candidate]:
        """For each implementation the candidate that stands for it.

        It has the default knobs, or the best measured ones if these were not measured.
        """
        strategy, measured = need_strategy(self.target), self.best[problem]
        found: dict[str, Candidate] = {}
        for name, implementation in strategy.applicable(problem, self.target).items():
            default = Candidate.of(name, implementation.config(problem, self.target))
            others = [
                each
                for each in measured
                if each.implementation == name and strategy.branch(each.way, problem, self.target)
            ]
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
#: What stands before the name of an implementation in a report of the benchmark, and in one of the
#: experiment ``second_round`` before the one that was the default then.
_OURS, _CHOSEN = "ours: ", "chosen: "


def measured_in_report(path: Path, target: Target) -> CandidateTimes:
    """The workloads in a report of ``tvm-scatter bench --all``, or of ``second_round``.

    Raises
    ------
    ScatterError
        If the file is neither.
    """
    times = CandidateTimes(target, weight=_BENCH_WEIGHT, every=True)
    machine, rows = reports.load(path, "a run", dict)
    measured = {row["workload"]: _forms(row) for row in rows}
    for workload in WORKLOADS:
        problem = workload.scaled(int(machine.get("scale", 1))).problem()
        for form, microseconds in measured.get(workload.name, {}).items():
            candidate = _candidate(form, problem, target)
            if candidate is not None:
                by_distribution = times.each.setdefault(problem, {}).setdefault(candidate, {})
                by_distribution[workload.distribution] = microseconds
    for problem, by_candidate in times.each.items():
        # Workloads that differ only in how indices repeat are one problem: the mean counts.
        times.best[problem] = {
            candidate: geometric_mean(each.values()) for candidate, each in by_candidate.items()
        }
    return times


def _forms(row: Mapping[str, Any]) -> dict[str, float]:
    """The microseconds of each of our implementations, by name and knobs."""
    forms = row.get("forms") or {
        name.removeprefix(_OURS): timed
        for name, timed in row["others"].items()
        if name.startswith(_OURS)
    }
    return {form.removeprefix(_CHOSEN): timed["device"] for form, timed in forms.items()}


def _candidate(form: str, problem: ScatterProblem, target: Target) -> Candidate | None:
    """The candidate for a name and knobs, if it can still take the problem."""
    name, *knobs = form.split()
    chosen = {knob: int(value) for knob, value in (each.split("=") for each in knobs)}
    branch = need_strategy(target).branch((name, chosen), problem, target)
    return None if branch is None else Candidate.of(name, branch.config)
