"""Random problems against the reference, on every implementation that takes them.

``HYPOTHESIS_PROFILE=thorough`` draws many more, with a new seed each time.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness import ProblemRunner, assert_same, numpy_dtype
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.extent import Extent
from tvm_scatter.reductions import DATA_DTYPES, FLOATS, REDUCTIONS
from tvm_scatter.reference import scatter_reference

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
EXAMPLES = {"llvm": 500, "cuda": 60} if THOROUGH else {"llvm": 10, "cuda": 3}
PROBLEMS_PER_MODULE = 4
INDEX_DTYPES = ("int64", "int32", "int8", "int16")


@st.composite
def problems(draw: Any) -> tuple[ScatterProblem, dict[str, int]]:
    """A problem, symbolic or not, and the sizes of its symbols."""
    sizes = {
        "b": draw(st.sampled_from([1, 1, 2, 3])),
        "n": draw(st.sampled_from([1, 2, 5, 17])),
        "m": draw(st.sampled_from([1, 3])),
        "s": draw(st.sampled_from([1, 1, 2, 4, 5, 130])),
        "k": draw(st.sampled_from([0, 1, 2, 7, 30, 70])),
    }
    symbolic = draw(st.booleans())

    def extent(name: str) -> Extent:
        return Extent.product([name if symbolic else sizes[name]])

    components = draw(st.sampled_from([1, 1, 2]))
    flags = {
        name: draw(st.booleans())
        for name in ("index_batch", "index_slice", "include_self", "wrap_negative", "in_place")
    }
    problem = ScatterProblem(
        batch=extent("b"),
        extents=(extent("n"), extent("m"))[:components],
        slice=extent("s"),
        count=extent("k"),
        data_dtype=draw(st.sampled_from(DATA_DTYPES)),
        index_dtype=draw(st.sampled_from(INDEX_DTYPES)),
        reduction=draw(st.sampled_from(sorted(REDUCTIONS))),
        interleaved=components > 1 and draw(st.booleans()),
        update_batch=draw(st.sampled_from([True, True, False])),
        update_count=draw(st.sampled_from([True, True, False])),
        update_slice=draw(st.sampled_from([True, True, False])),
        deterministic=True,
        bounds="drop",
        **flags,
    )
    # As lowering has it: an axis of one position varies over nothing.
    for axis in ("batch", "slice"):
        if getattr(problem, axis).is_one:
            problem = replace(problem, **{f"index_{axis}": False, f"update_{axis}": True})
    return problem, sizes if symbolic else {}


def values(
    generator: np.random.Generator, problem: ScatterProblem, size: int
) -> np.ndarray[Any, Any]:
    """Small whole numbers, so that every order of adding or multiplying them gives the same."""
    dtype = numpy_dtype(problem.data_dtype)
    if problem.data_dtype == "bool":
        return generator.integers(0, 2, size).astype(bool)
    signed = not problem.data_dtype.startswith("u")
    if problem.reduction == "mul":
        return generator.choice([-1, 1] if signed else [1, 3], size).astype(dtype)
    result = generator.integers(-3 if signed else 0, 4, size).astype(dtype)
    if problem.data_dtype in FLOATS and problem.reduction in ("min", "max", "update"):
        result[generator.random(size) < 0.1] = np.nan
        result[generator.random(size) < 0.1] = -np.inf
    return result


def operands(problem: ScatterProblem, seed: int) -> tuple[Any, list[Any], Any]:
    """Data, indices (negative, repeated and out of range among them) and updates."""
    generator = np.random.default_rng(seed)

    def count(**varies: bool) -> int:
        extents = [getattr(problem, axis) for axis, wanted in varies.items() if wanted]
        return int(np.prod([extent.constant for extent in extents], dtype=np.int64))

    items = count(batch=problem.index_batch, count=True, slice=problem.index_slice)
    indices = [
        generator.integers(-extent.constant - 1, extent.constant + 1, items).astype(
            problem.index_dtype
        )
        for extent in problem.extents
    ]
    if problem.interleaved:
        indices = [np.stack(indices, axis=1)]
    updates = count(
        batch=problem.update_batch, count=problem.update_count, slice=problem.update_slice
    )
    return (
        values(generator, problem, problem.data_size.constant),
        indices,
        values(generator, problem, updates),
    )


@pytest.mark.parametrize("part", range(2))
def test_against_the_reference(device: str, part: int) -> None:
    strategy = strategy_for(device)
    assert strategy is not None

    @settings(
        max_examples=EXAMPLES[device] // 2 + 1,
        derandomize=not THOROUGH,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(
        st.lists(problems(), min_size=PROBLEMS_PER_MODULE, max_size=PROBLEMS_PER_MODULE),
        st.integers(0, 2**31),
    )
    def check(drawn: list[tuple[ScatterProblem, dict[str, int]]], number: int) -> None:
        runner = ProblemRunner(device)
        runs = {}
        for i, (problem, sizes) in enumerate(drawn):
            for name in strategy.applicable(problem, runner.target):
                runs[f"problem{i}_{name}"] = problem, sizes
                runner.add(f"problem{i}_{name}", problem, name, sizes=sizes)
        for i, (name, (problem, sizes)) in enumerate(runs.items()):
            note(f"{name}: {problem} {sizes}")
            static = problem.with_sizes(sizes)
            data, indices, updates = operands(static, number + i)
            result = runner.run(name, data, indices, updates, in_place=problem.in_place)
            expected = scatter_reference(static, data, indices, updates)
            # Division may be off by the last bit where the compiler approximates it.
            tolerance = {2: 1e-2, 4: 1e-6}.get(expected.dtype.itemsize, 1e-12)
            exact = problem.reduction != "mean" or device == "llvm"
            assert_same(result, expected, name, 0 if exact else tolerance)

    (check if THOROUGH else seed(part)(check))()
