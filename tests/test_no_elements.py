"""Problems without batches, destinations, columns or updates: taken, or refused for a reason."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from harness import ProblemRunner, called, compiled_with, relax_function
from tvm import relax

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.symbolic_size import SymbolicSize

#: Batches, destinations, columns and updates, of which some are none.
SHAPES = [shape for shape in product((0, 1, 3), (0, 1), (0, 1, 16), (0, 2)) if 0 in shape]
#: Implementations take turns: each has every third shape, and in ``exhaustive`` runs all.
TURNS = 5


def problem_of(sizes: list[int] | list[str], reduction: str) -> ScatterProblem:
    batch, extent, width, count = (SymbolicSize.product([size]) for size in sizes)
    return ScatterProblem(
        batch=batch,
        extents=(extent,),
        slice=width,
        count=count,
        data_dtype="float32",
        index_dtype="int64",
        reduction=reduction,
    )


def check(runner: ProblemRunner, name: str, shape: list[int]) -> None:
    batch, extent, width, count = shape
    data = np.full(batch * extent * width, 7, "float32")
    updates = np.ones(batch * count * width, "float32")
    result = runner.run(name, data, [np.zeros(count, "int64")], updates)
    np.testing.assert_array_equal(result, data, f"{name}: {shape}")


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["some", "every"]
)
@pytest.mark.parametrize("reduction", ["update", "add", "max"])
def test_nothing_is_written(device: str, reduction: str, every: bool) -> None:
    strategy, runner = strategy_for(device), ProblemRunner(device)
    assert strategy is not None
    known = []
    for at, shape in enumerate(map(list, SHAPES)):
        problem = problem_of(shape, reduction)
        for turn, name in enumerate(strategy.applicable(problem, runner.target)):
            if not every and (at + turn) % TURNS:
                continue
            known.append(("_".join(map(str, [name, *shape])), shape))
            runner.add(known[-1][0], problem, name)
    for name, shape in known:
        check(runner, name, shape)


@pytest.mark.turns(6)
@pytest.mark.parametrize("reduction", ["update", "add", "max"])
def test_nothing_is_written_where_the_run_says_so(device: str, reduction: str) -> None:
    strategy, runner = strategy_for(device), ProblemRunner(device)
    assert strategy is not None
    symbols = ["batch", "extent", "width", "count"]
    problem = problem_of(symbols, reduction)
    names = list(strategy.applicable(problem, runner.target))
    for name in names:
        runner.add(name, problem, name, sizes=dict.fromkeys(symbols, 1))
    # As integers, what the workspace holds at first is negative, or beyond all that there is.
    for name, runner.workspace_byte in product(names, (171, 91)):
        for shape in map(list, SHAPES):
            runner.set_sizes(name, dict(zip(symbols, shape, strict=True)))
            check(runner, name, shape)


@pytest.mark.optimised
def test_nothing_is_divided_by_the_size_of_nothing() -> None:
    """Where the run chooses, TVM computes what several branches need in front of them all."""
    builder = relax.BlockBuilder()
    arrays = np.zeros(4, "float32"), np.zeros(5, "int64"), np.zeros(5, "float32")
    for reduction in ("add", "mean", "max"):

        def scattered(data: Any, index: Any, updates: Any, reduction: str = reduction) -> Any:
            return index_put(data, [index], updates, reduction=reduction)

        relax_function(builder, reduction, scattered, arrays, symbolic=True)
    compiled = compiled_with(builder.get(), "llvm")
    nothing, data = np.zeros(0, "float32"), np.arange(4, dtype="float32")
    for name, each in product(("add", "mean", "max"), (nothing, data)):
        found = called(compiled, "llvm", (each, np.zeros(0, "int64"), nothing), name)
        np.testing.assert_array_equal(found, each)
