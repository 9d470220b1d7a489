"""The results of tuning: candidates in order, and their gain over the default."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import Decision, TunedRecord, ranking, typical
from tvm_scatter.tasks import Task
from tvm_scatter.tuning.measure.build import Failure
from tvm_scatter.tuning.space.candidates import Candidate, default_candidate

from .database import Database


@dataclass
class Result:
    """The result of tuning a task.

    Attributes
    ----------
    default : float or None
        Microseconds of the choice without a record; ``None`` where it was not measured.
    ranked : list of TunedRecord
        Measured candidates, fastest first.
    failed : list of Failure
        Candidates that were left out.
    space : int
        How many candidates a run may measure; 0 where nobody counted.
    tried : int
        How many of them it has measured or tried to measure.
    """

    task: Task
    space: int = 0
    tried: int = 0
    default: float | None = None
    ranked: list[TunedRecord] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)

    @property
    def best(self) -> TunedRecord | None:
        """The fastest."""
        return self.ranked[0] if self.ranked else None

    @property
    def gain(self) -> float:
        """The default's time over the best one's; 1 where either is unknown."""
        if self.best is None or self.default is None:
            return 1.0
        return self.default / self.best.microseconds

    def take(
        self, known: Sequence[tuple[Decision, float]], defaults: Collection[Candidate]
    ) -> None:
        """Add measurements, each a decision and its microseconds."""
        self.ranked = ranking(known)
        times = [r.microseconds for r in self.ranked if candidate_of(r) in defaults]
        self.default = min(times) if times else None


def candidate_of(record: TunedRecord) -> Candidate:
    """The candidate behind a record."""
    return Candidate.of(record.implementation, record.config)


def default_candidates(task: Task, target: Target) -> set[Candidate]:
    """The choice without a record: one candidate, or several among which symbolic sizes decide."""
    return {default_candidate(problem, target) for problem in task.representatives().values()}


def recorded_tasks(database: Database, pattern: str = "*") -> list[Task]:
    """The static problems that a directory has records of, first those whose default has none.

    Parameters
    ----------
    pattern : str
        Only tasks of such a name count (:meth:`~tvm_scatter.tasks.Task.is_named`).
    """
    target = database.target()
    known: dict[ScatterProblem, set[Candidate]] = {}
    for problem, decision, _ in database.records():
        if problem.is_static:
            measured = known.setdefault(problem, set())
            measured.add(Candidate.of(decision.implementation, decision.config))

    def is_known(task: Task) -> bool:
        return default_candidates(task, target) <= known[task.problem]

    named = (task for task in map(Task, known) if task.is_named(pattern))
    return sorted(named, key=is_known)


def results_in(database: Database) -> list[Result]:
    """The results that a directory of records holds, in the order in which they were begun."""
    target = database.target()
    known: dict[ScatterProblem, list[tuple[Decision, float]]] = {}
    for problem, decision, seconds in database.records():
        known.setdefault(problem, []).append((decision, typical(seconds)))
    results = []
    for problem, timed in known.items():
        task = Task(problem)
        result = Result(task)
        result.take(timed, default_candidates(task, target))
        results.append(result)
    return results
