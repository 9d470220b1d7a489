"""Rows that a CPU reduces in the order of their destinations, of any width."""

from __future__ import annotations

from dataclasses import replace

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
COUNT = 220
#: Fewer destinations than items, which counters sort, and more, all of whose bits keys need.
EXTENTS = (41, 256)


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


#: Each reduction and width is of one of them, by turns; ``exhaustive`` tries all.
DTYPES = ("float32", "float64", "int32")


@pytest.mark.turns(3)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_width(dtype: str, every: bool) -> None:
    runner, generator = ProblemRunner(), np.random.default_rng(0)
    reductions = ("add", "mean", "max", "min", "update")
    problems = {
        f"{reduction}_{width}": _problem(reduction, dtype, width, EXTENTS[(i + j) % 2], COUNT)
        for i, reduction in enumerate(reductions)
        for j, width in enumerate(WIDTHS)
        if every or DTYPES[(i + j) % len(DTYPES)] == dtype
    }
    for name, problem in problems.items():
        runner.add(name, problem, "sort_based")
    for name, problem in problems.items():
        width, extent = problem.slice.constant, problem.extent.constant
        # Small whole numbers are summed exactly in any order.
        data = generator.integers(-9, 9, extent * width).astype(dtype)
        updates = generator.integers(-9, 9, COUNT * width).astype(dtype)
        if REDUCTIONS[problem.reduction].is_extreme and dtype != "int32":
            kinds = generator.integers(0, len(KINDS), COUNT * width)
            updates = draw(generator, dtype, kinds)
        index = np.minimum(generator.zipf(1.5, COUNT) - 1, extent + 2).astype("int32")
        expected = scatter_reference(problem, data, [index], updates)
        result = runner.run(name, data, [index], updates)
        assert result.tobytes() == expected.reshape(-1).tobytes(), name


@pytest.mark.parametrize("extent", (2047, 5000, 65536, 262143, 262144))
@pytest.mark.turns(2)
def test_many_destinations(extent: int) -> None:
    """Fewer than items are sorted by counters in one pass, and others in more."""
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


#: Destinations and items: of each none, one and two; empty ones in front, between and behind; all
#: items at one of many, over many chunks; more items out of bounds than a chunk has.
FILLED = ((1, 2), (2, 3), (3, 40), (50, 5000), (700, 5000), (2, 5000))


@pytest.mark.turns(5)
@pytest.mark.parametrize(
    ("reduction", "fill", "dtype"),
    [
        ("add", "2.5", "float32"),
        ("mean", "0.0", "float32"),
        ("max", "-inf", "float64"),
        ("min", "7", "int32"),
        ("update", "-1.0", "float16"),
    ],
)
def test_rows_that_are_filled(reduction: str, fill: str, dtype: str) -> None:
    """Every row is written, those without items too; what memory held before does not show."""
    runner, generator = ProblemRunner(), np.random.default_rng(2)
    cases = {}
    for number, (extent, count) in enumerate(FILLED):
        posed = _problem(reduction, dtype, 5 + number % 2, extent, count)
        cases[f"case{number}"] = replace(posed, fill=fill)
    for name, problem in cases.items():
        runner.add(name, problem, "sort_based")
    for name, problem in cases.items():
        extent, count = problem.extent.constant, problem.count.constant
        width = problem.slice.constant
        data = np.full(extent * width, float(fill)).astype(dtype)
        updates = generator.integers(-9, 9, count * width).astype(dtype)
        index = generator.integers(extent // 4, extent - extent // 4, count).astype("int32")
        if extent == 700:
            index[generator.permutation(count)[:4000]] = 400
        if extent in (2, 3):
            index[generator.permutation(count)[: count // 2]] = extent + 5
        expected = scatter_reference(problem, data, [index], updates)
        given = np.full_like(data, 99)
        result = runner.run(name, given, [index], updates)
        np.testing.assert_array_equal(result, expected.reshape(-1), err_msg=name)
