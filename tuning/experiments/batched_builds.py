"""What building candidates together saves: one by one, in one source, and shared out to workers.

::

    python -m tvm_scatter.tuning.experiments.batched_builds --target sm_90 --candidates 32
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.tuning.measure.build import Failure, build, compile_library, describe_target
from tvm_scatter.tuning.measure.workers import Workers
from tvm_scatter.tuning.space.candidates import Candidate, candidates
from tvm_scatter.tuning.space.grid import problem


def spread(every: Sequence[Candidate], count: int) -> list[Candidate]:
    """Candidates of all implementations in turn."""
    groups = [list(group) for _, group in itertools.groupby(every, lambda c: c.implementation)]
    rounds = itertools.zip_longest(*groups)
    return [candidate for each in rounds for candidate in each if candidate is not None][:count]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build every way and print the seconds and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.experiments.batched_builds")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--candidates", type=int, default=32, metavar="N")
    parser.add_argument(
        "--workers", type=int, nargs="*", default=[min(16, os.cpu_count() or 1)], metavar="N",
        help="processes that compile a share each",
    )  # fmt: skip
    parser.add_argument("--implementation", metavar="NAME", help="only candidates of this one")
    parsed = parser.parse_args(arguments)
    # What was compiled once must be compiled again here.
    os.environ["TVM_SCATTER_CACHE"] = "0"
    target = parse_target(parsed.target)
    posed = problem(1000, 32, 100_000)
    every = [
        candidate
        for candidate in candidates(posed, target)
        if parsed.implementation in (None, candidate.implementation)
    ]
    chosen = spread(every, parsed.candidates)
    one_by_one = _in_one_process(posed, target, [[candidate] for candidate in chosen])
    one_source = _in_one_process(posed, target, [chosen])
    print(f"{len(chosen)} candidates one by one: {one_by_one:.1f} s", flush=True)
    _report("in one source", one_source, one_by_one)
    for workers in parsed.workers:
        seconds = _by_workers(posed, target, chosen, workers)
        _report(f"in as many sources as workers, {workers}", seconds, one_by_one)
    return 0


def _report(how: str, seconds: float, one_by_one: float) -> None:
    print(f"{how}: {seconds:.2f} s, {one_by_one / seconds:.1f}x", flush=True)


def _in_one_process(
    posed: ScatterProblem, target: Target, groups: Sequence[Sequence[Candidate]]
) -> float:
    """Seconds for one library after the other, with the compiler loaded before."""
    described = describe_target(target)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "library.so")
        compile_library(posed, described, groups[0][:1], path)
        begin = time.perf_counter()
        for group in groups:
            compile_library(posed, described, group, path)
        return time.perf_counter() - begin


def _by_workers(
    posed: ScatterProblem, target: Target, chosen: Sequence[Candidate], count: int
) -> float:
    """Seconds for a round of tuning, by workers that have compiled before."""
    with (
        Workers(count) as workers,
        ThreadPoolExecutor(count) as threads,
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder)
        for _ in build(workers, threads, posed, target, [chosen[0]] * count, path, count):
            pass
        begin = time.perf_counter()
        built = list(build(workers, threads, posed, target, chosen, path, count))
        seconds = time.perf_counter() - begin
    if any(isinstance(each, Failure) for each in built):
        raise ScatterError(f"batched_builds: not every candidate compiles for {target}.")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
