"""CPU code has no race and divides its work rightly: large exact problems in several threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import ProblemRunner
from random_problems import draw_operands

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

#: By name: batch, extent, slice, count, and whether the index varies over batch and slice.
FORMS = {
    "line": (1, 256, 1, 40_000, False, False),
    "long_line": (1, 300_000, 1, 30_000, False, False),
    "wide_rows": (2, 40, 300, 200, False, False),
    "elements": (3, 64, 40, 400, True, True),
    "batches": (24, 50, 1, 1_000, True, False),
}
#: By name: the reduction, whether it includes the data, and whether no index repeats.
WAYS = {
    "add": ("add", True, False),
    "mean": ("mean", True, False),
    "least_alone": ("min", False, False),
    "last": ("update", True, False),
    "add_once": ("add", True, True),
}


def problem(form: str, way: str) -> ScatterProblem:
    batch, extent, columns, count, index_batch, index_slice = FORMS[form]
    reduction, include_self, unique = WAYS[way]
    return ScatterProblem(
        batch=SymbolicSize(batch),
        extents=(SymbolicSize(extent),),
        slice=SymbolicSize(columns),
        count=SymbolicSize(min(count, extent) if unique else count),
        data_dtype="int32",
        index_dtype="int64",
        reduction=reduction,
        include_self=include_self,
        unique=unique,
        index_batch=index_batch,
        index_slice=index_slice,
        deterministic=True,
        bounds="drop",
    )


@pytest.mark.parametrize(
    ("chosen", "share"),
    [
        pytest.param("sort_based", 2, id="some of sort_based"),
        *(
            pytest.param(name, 1, id=name, marks=pytest.mark.exhaustive)
            for name in (
                *("sequential", "parallel_injective", "sort_based", "partitioned"),
                "private_bins",
            )
        ),
    ],
)
def test_large_problems(chosen: str, share: int) -> None:
    strategy = strategy_for("llvm")
    assert strategy is not None
    runner = ProblemRunner("llvm")
    problems = {f"{form}_{way}": problem(form, way) for form in FORMS for way in WAYS}
    del problems["elements_add_once"], problems["batches_add_once"], problems["long_line_add_once"]
    problems |= {
        "in_place_" + name: replace(each, in_place=True)
        for name, each in problems.items()
        if name in ("line_mean", "wide_rows_mean")
    }
    taken = {
        name: each
        for name, each in list(problems.items())[::share]
        if chosen in strategy.applicable(each, runner.target)
    }
    assert taken
    for name, each in taken.items():
        runner.add(name, each, chosen)
    for at, (name, each) in enumerate(taken.items()):
        data, indices, updates = draw_operands(each, at)
        expected = scatter_reference(each, data, indices, updates)
        for _ in range(4):
            result = runner.run(name, data, indices, updates, in_place=each.in_place)
            np.testing.assert_array_equal(result, expected, err_msg=name)
