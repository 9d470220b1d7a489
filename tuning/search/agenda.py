"""Which tasks a run begins with, and what it adds to a log that holds some records already."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import Decision, ranking
from tvm_scatter.tasks import Task
from tvm_scatter.tuning.space.candidates import Candidate

#: An implementation that takes at most so many times the best is near it.
_NEAR = 1.5
#: Candidates of an implementation that comes late to a log, besides its default.
_MORE = 3

Known = Mapping[ScatterProblem, Sequence[tuple[Decision, float]]]


def need_names(asked: Collection[str], names: Collection[str]) -> None:
    """Refuse implementations that are not in a table.

    Raises
    ------
    ScatterError
        If a name is in none of the tables.
    """
    for name in asked:
        if name not in names:
            raise ScatterError(
                f"tuning: there is no implementation {name!r}; there is: {', '.join(names)}."
            )


def late(
    problem: ScatterProblem,
    space: Sequence[Candidate],
    implementations: Collection[str],
    seed: int,
) -> list[Candidate]:
    """A few candidates of each of some implementations, their defaults first.

    They fit one round, because compiling takes longer than measuring. Few are enough: hundreds of
    problems together tell which knobs matter.
    """
    generator = random.Random(f"{problem} {seed}")
    found = []
    for name in implementations:
        offered = [candidate for candidate in space if candidate.implementation == name]
        others = offered[1:]
        found += offered[:1] + generator.sample(others, min(_MORE, len(others)))
    return found


def in_order(tasks: Sequence[Task], known: Known, rivals: Collection[str]) -> list[int]:
    """The order of tasks: first those without records and those with a rival near the best."""
    urgent = [_urgent(known.get(task.problem, ()), rivals) for task in tasks]
    return sorted(range(len(tasks)), key=lambda place: not urgent[place])


def _urgent(timed: Sequence[tuple[Decision, float]], rivals: Collection[str]) -> bool:
    ranked = ranking(timed)
    return not ranked or any(
        record.implementation in rivals and record.microseconds <= _NEAR * ranked[0].microseconds
        for record in ranked
    )
