"""Costs of several sizes at once are those of each alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cuda_cases import cuda_target

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.calibrated import machine_for
from tvm_scatter.selection.cost import Costs, coefficients
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.tuning.space.candidates import need_strategy

#: Nothing, one, few, and more than any cache holds.
VALUES = (0, 1, 100, 5_000_000)


@pytest.mark.parametrize("target", ["cuda", "llvm"])
@pytest.mark.parametrize("reduction", ["update", "add", "mean"])
@pytest.mark.parametrize("symbols", ["n", "e", "ne", "bne", "new"])
def test_together_as_alone(target, reduction, symbols):
    tvm_target = cuda_target("sm_90") if target == "cuda" else parse_target("llvm")
    strategy = need_strategy(tvm_target)
    machine = machine_for(strategy.backend, tvm_target)

    def size(symbol: str, static: int) -> SymbolicSize:
        return SymbolicSize.product([symbol if symbol in symbols else static])

    batch, extent, count, width = size("b", 3), size("n", 700), size("e", 9000), size("w", 1)
    problem = ScatterProblem(
        batch=batch, extents=(extent,), slice=width, count=count,
        data_dtype="float16", index_dtype="int64", reduction=reduction,
    )  # fmt: skip
    every = [
        Sizes.of(problem, dict(zip(symbols, values, strict=True)))
        for values in product(VALUES, repeat=len(symbols))
    ]
    costs = Costs(problem, machine, coefficients(target))
    found = strategy.applicable(problem, tvm_target)
    assert found
    for implementation in found.values():
        predict = costs.of(implementation, implementation.config(problem, tvm_target))
        if predict is None:
            continue
        alone = [predict(sizes).microseconds for sizes in every]
        together = predict(Sizes.together(every)).microseconds
        np.testing.assert_allclose(np.broadcast_to(together, len(every)), alone, rtol=1e-12)
