"""What a run measures of a log that holds some of it already, and what it begins with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.records import Decision, ranking
from tvm_scatter.tuning.candidates import Candidate
from tvm_scatter.tuning.tasks import Task

#: An implementation that takes at most so many times the best is near it.
_NEAR = 1.5

Known = Mapping[ScatterProblem, Sequence[tuple[Decision, float]]]


def need_names(asked: Collection[str], names: Collection[str]) -> None:
    """Refuse implementations that are not in a table.

    Raises
    ------
    ScatterError
        If there is one.
    """
    for name in asked:
        if name not in names:
            raise ScatterError(
                f"tuning: there is no implementation {name!r}; there is: {', '.join(names)}."
            )


def of(space: Sequence[Candidate], implementations: Collection[str]) -> list[Candidate]:
    """The candidates of some implementations; all where none is named."""
    return [c for c in space if not implementations or c.implementation in implementations]


def in_order(tasks: Sequence[Task], known: Known, rivals: Collection[str]) -> list[int]:
    """Places of tasks, first those without records or in which a rival is near the best."""
    urgent = [_urgent(known.get(task.problem, ()), rivals) for task in tasks]
    return sorted(range(len(tasks)), key=lambda place: not urgent[place])


def _urgent(timed: Sequence[tuple[Decision, float]], rivals: Collection[str]) -> bool:
    ranked = ranking(timed)
    return not ranked or any(
        record.implementation in rivals and record.microseconds <= _NEAR * ranked[0].microseconds
        for record in ranked
    )
