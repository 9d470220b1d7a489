"""Times of a few candidates on this machine's device, taken in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm.target import Target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.tuning.operands.inputs import Circumstance, make_inputs
from tvm_scatter.tuning.space.candidates import Candidate

from .build import compile_library, describe_target
from .trial import Trial, forget, run_trial

#: The seconds of single calls, by candidate and by the distribution of the indices.
Times = dict[Candidate, dict[str, list[float]]]


def times_here(
    problem: ScatterProblem,
    target: Target,
    candidates: Sequence[Candidate],
    distributions: Sequence[str],
) -> Times:
    """Check and time candidates of a static problem, with cold caches on a GPU only.

    What goes wrong is raised, and what crashes takes this process along: so only for candidates
    that would be used anyway.

    Raises
    ------
    WrongAnswer
        If a candidate's answer is wrong.
    """
    posed = replace(problem, bounds="drop")
    times: Times = {}
    with TemporaryDirectory(prefix="tvm-scatter-") as folder:
        path = str(Path(folder) / "candidates.so")
        library = compile_library(posed, describe_target(target), candidates, path)
        try:
            for distribution in distributions:
                inputs = Path(folder) / f"inputs_{distribution}.npz"
                make_inputs(posed, Circumstance(distribution)).save(inputs)
                for built in library.built:
                    cold = backend_of(target).is_gpu
                    trial = Trial(posed, built, path, str(inputs), target.kind.name, cold)
                    times.setdefault(built.candidate, {})[distribution] = run_trial(trial)
        finally:
            forget()
    return times
