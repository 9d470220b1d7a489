"""What building candidates together saves: the same candidates one by one and in one source.

::

    python -m tvm_scatter.tuning.batched_builds --target sm_90 --candidates 32
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tvm_scatter.targets import parse_target
from tvm_scatter.tuning.build import compile_library, describe_target
from tvm_scatter.tuning.candidates import Candidate, candidates
from tvm_scatter.tuning.grid import problem


def spread(every: Sequence[Candidate], count: int) -> list[Candidate]:
    """Candidates of all implementations in turn."""
    groups = [list(group) for _, group in itertools.groupby(every, lambda c: c.implementation)]
    rounds = itertools.zip_longest(*groups)
    return [candidate for each in rounds for candidate in each if candidate is not None][:count]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build both ways and print the seconds and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m tvm_scatter.tuning.batched_builds")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--candidates", type=int, default=32, metavar="N")
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
    described = describe_target(target)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "library.so")
        compile_library(posed, described, chosen[:1], path)  # loads the compiler
        begin = time.perf_counter()
        compile_library(posed, described, chosen, path)
        together = time.perf_counter() - begin
        begin = time.perf_counter()
        for candidate in chosen:
            compile_library(posed, described, [candidate], path)
        alone = time.perf_counter() - begin
    print(
        f"{len(chosen)} candidates: {alone:.1f} s one by one, {together:.1f} s together, "
        f"{alone / together:.1f}x"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
