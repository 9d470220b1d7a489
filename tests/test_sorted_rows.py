"""Rows that a CPU reduces in the order of their destinations, of any width."""

from __future__ import annotations

import numpy as np
import pytest
from harness import ProblemRunner
from special_values import KINDS, draw

from tvm_scatter import ScatterProblem
from tvm_scatter.problem.reductions import REDUCTIONS
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

pytestmark = pytest.mark.optimised

#: Single elements, less than a vector, vectors, those and a rest, two blocks, a short block.
WIDTHS = (1, 7, 32, 83, 512, 300)
EXTENT, COUNT = 41, 220


def _problem(reduction: str, dtype: str, width: int, extent: int, count: int) -> ScatterProblem:
    return ScatterProblem(
        batch=SymbolicSize(1),
        extents=(SymbolicSize(extent),),
        slice=SymbolicSize(width),
        count=SymbolicSize(count),
        data_dtype=dtype,
        index_dtype="int32",
        reduction=reduction,
        include_self=width % 2 == 0,
        bounds="drop",
    )


@pytest.mark.parametrize("dtype", ("float32", "float64", "int32"))
def test_rows_of_any_width(dtype: str) -> None:
    runner, generator = ProblemRunner(), np.random.default_rng(0)
    problems = {
        f"{reduction}_{width}": _problem(reduction, dtype, width, EXTENT, COUNT)
        for reduction in ("add", "mean", "max", "min", "update")
        for width in WIDTHS
    }
    for name, problem in problems.items():
        runner.add(name, problem, "sort_based")
    for name, problem in problems.items():
        width = problem.slice.constant
        # Small whole numbers are summed exactly in any order.
        data = generator.integers(-9, 9, EXTENT * width).astype(dtype)
        updates = generator.integers(-9, 9, COUNT * width).astype(dtype)
        if REDUCTIONS[problem.reduction].is_extreme and dtype != "int32":
            kinds = generator.integers(0, len(KINDS), COUNT * width)
            updates = draw(generator, dtype, kinds)
        index = np.minimum(generator.zipf(1.5, COUNT) - 1, EXTENT + 2).astype("int32")
        expected = scatter_reference(problem, data, [index], updates)
        result = runner.run(name, data, [index], updates)
        assert result.tobytes() == expected.reshape(-1).tobytes(), name


@pytest.mark.parametrize("extent", (2047, 2048, 5000, 65535, 65536))
def test_many_destinations(extent: int) -> None:
    """With enough items, keys of up to 16 bits are sorted in one pass, and others in more."""
    generator, count = np.random.default_rng(1), 4 * 65536
    problem = _problem("update", "int32", 1, extent, count)
    runner = ProblemRunner()
    runner.add("last", problem, "sort_based")
    data = np.full(extent, -1, "int32")
    index = generator.integers(-1, extent + 1, count).astype("int32")
    updates = np.arange(count, dtype="int32")
    expected = scatter_reference(problem, data, [index], updates)
    result = runner.run("last", data, [index], updates)
    np.testing.assert_array_equal(result, expected.reshape(-1))
