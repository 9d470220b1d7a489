"""Times the few ways that a prediction cannot tell apart, for the option ``measure``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.tuning.measure import machine
from tvm_scatter.tuning.measure.here import times_here
from tvm_scatter.tuning.space.candidates import Candidate
from tvm_scatter.tuning.store.database import open_database

from .tune import DISTRIBUTIONS


def settle(
    problem: ScatterProblem,
    target: Target,
    ways: Sequence[tuple[str, Mapping[str, int]]],
    folder: Path,
) -> None:
    """Time ways to compute a static problem, and add the records to a directory of them.

    Parameters
    ----------
    ways : sequence of (str, mapping)
        Implementations and their knobs.
    """
    named = [Candidate.of(name, config) for name, config in ways]
    distributions = ["permutation"] if problem.unique else DISTRIBUTIONS
    times = times_here(problem, target, named, distributions)
    cache = "cold" if backend_of(target).is_gpu else "warm"
    with open_database(folder, target) as database:
        if not len(database):
            date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
            database.add_run({"date": date, "machine": machine.describe(target.kind.name)})
        for candidate, by_distribution in times.items():
            for distribution, seconds in by_distribution.items():
                told = {"distribution": distribution, "seed": "0", "cache": cache}
                database.add(problem, target, candidate, told, seconds)
