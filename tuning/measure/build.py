"""Candidates compiled together: one module, and for CUDA one compilation of one source.

Nearly all the time of compiling a small CUDA kernel goes into headers, which are read once here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.tuning.operands.inputs import narrow_columns
from tvm_scatter.tuning.space.candidates import Built, Candidate, prim_func

from . import answer
from .workers import WorkerError, Workers

#: A compilation that takes longer is taken for hung.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Library:
    """A compiled module on disk and the candidates in it."""

    path: str
    built: tuple[Built, ...]


@dataclass(frozen=True)
class Failure:
    """A candidate that is left out, and why."""

    candidate: Candidate
    reason: str


def describe_target(target: Target) -> str:
    """A target as text that another process can read."""
    return json.dumps(dict(target.export()), default=_plain)


def read_target(text: str) -> Target:
    """The inverse of :func:`describe_target`."""
    return Target(json.loads(text))


def _plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return dict(value.items())
    return list(value) if hasattr(value, "__iter__") else str(value)


def compile_library(
    problem: ScatterProblem, target: str, candidates: Sequence[Candidate], path: str
) -> Library:
    """Compile candidates of a static problem into one shared library.

    Parameters
    ----------
    target : str
        What :func:`describe_target` made.

    Raises
    ------
    ScatterError
        If two functions have one name.
    """
    on = _quick_host(read_target(target))
    functions, built = {}, []
    for i, candidate in enumerate(candidates):
        function, entry = prim_func(candidate, problem, on, f"candidate_{i}")
        functions[entry.function] = function
        built.append(entry)
    for name, function in _answer_functions(problem, on).items():
        functions[name] = function.with_attr("global_symbol", name)
    if len(functions) != len(built) + 3:
        raise ScatterError("tuning: two candidates have one name.")
    module = tvm.compile(tvm.IRModule(functions), target=on)
    module.export_library(path)
    return Library(path, tuple(built))


def _quick_host(target: Target) -> Target:
    """A GPU's target with host code that is not optimised.

    That code checks arguments and launches kernels, and takes longer to optimise than the kernels
    take to compile.
    """
    if not backend_of(target).is_gpu:
        return target
    described = json.loads(describe_target(target))
    return Target({**described, "host": {"kind": "llvm", "opt-level": 0}})


def _answer_functions(problem: ScatterProblem, target: Target) -> dict[str, Any]:
    sizes, dtype = Sizes.of(problem), problem.data_dtype
    columns, width = narrow_columns(problem), int(sizes.slice)
    rows = int(sizes.batch * sizes.extent)
    update_rows = int(sizes.batch if problem.update_batch else 1)
    update_rows *= int(sizes.count if problem.update_count else 1)
    width_of_updates = width if problem.update_slice else 1
    return {
        "widen_data": answer.widen(dtype, rows, columns, width, target),
        "widen_updates": answer.widen(
            dtype, update_rows, min(columns, width_of_updates), width_of_updates, target
        ),
        "differences": answer.differences(dtype, rows, columns, width, target),
    }


def build(
    workers: Workers,
    executor: Executor,
    problem: ScatterProblem,
    target: Target,
    candidates: Sequence[Candidate],
    folder: Path,
    parts: int = 1,
) -> Iterator[Library | Failure]:
    """Compile candidates, side by side in a few libraries.

    One that does not compile, or takes the compiler down, is found by halving and left out.

    Parameters
    ----------
    executor : Executor
        Threads that wait for the workers.
    folder : Path
        Where the libraries go.
    parts : int
        How many libraries: each costs as much as several kernels before the first is compiled, so
        more than one only where a worker would wait.

    Yields
    ------
    result : Library or Failure
        Every candidate is in one of them.
    """
    described = describe_target(target)
    share = max(1, -(-len(candidates) // parts))
    waiting = [candidates[i : i + share] for i in range(0, len(candidates), share)]
    number = 0

    def compile_group(group: Sequence[Candidate], path: Path) -> Library:
        with workers.lent() as worker:
            result = worker.call(
                compile_library, problem, described, tuple(group), str(path), timeout=TIMEOUT
            )
        assert isinstance(result, Library)
        return result

    while waiting:
        futures: list[tuple[Sequence[Candidate], Future[Library]]] = []
        for group in waiting:
            path = folder / f"library_{number}.so"
            futures.append((group, executor.submit(compile_group, group, path)))
            number += 1
        waiting = []
        for group, future in futures:
            try:
                yield future.result()
            except WorkerError as error:
                if len(group) == 1:
                    yield Failure(group[0], f"it does not compile: {error}")
                else:
                    half = len(group) // 2
                    waiting += [group[:half], group[half:]]
