"""Kernels count elements in 32 bits only where all of them fit; large tensors need a GPU to run."""

from __future__ import annotations

import pytest
from harness import ProblemRunner

from tvm_scatter import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize

pytestmark = pytest.mark.optimised

MANY, FEW = 1 << 31, 1000


@pytest.mark.parametrize(
    ("extent", "count", "width", "index_slice", "wide"),
    [
        (FEW, FEW, 1, False, {"int"}),
        (MANY, FEW, 1, False, {"long long"}),
        (FEW, MANY, 1, False, {"long long"}),
        (FEW, MANY // FEW + 1, FEW, False, {"long long"}),
        (MANY // FEW + 1, FEW, FEW, True, {"long long"}),
        ("n", FEW, 1, False, {"int", "long long"}),
        (FEW, "n", 1, False, {"int", "long long"}),
    ],
)
def test_offsets_are_wide_where_they_must_be(
    extent: int | str, count: int | str, width: int, index_slice: bool, wide: set[str]
) -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize.product([extent]),),
        slice=SymbolicSize(width),
        count=SymbolicSize.product([count]),
        data_dtype="int8",
        index_dtype="int64",
        reduction="add",
        index_slice=index_slice,
    )
    runner = ProblemRunner("cuda")
    runner.add("main", problem, "parallel_injective", sizes={"n": FEW})
    source = str(runner._functions["main"].script())
    found = {kind for kind in ("int", "long long") if f"using Offset = {kind};" in source}
    # The copy of the data counts bytes, and is no template over a problem.
    assert found == wide
