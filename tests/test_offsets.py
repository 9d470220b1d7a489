"""Kernels count elements in 32 bits only where all of them fit; large tensors need a GPU to run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness import ProblemRunner, assert_same, target_of
from random_problems import draw_operands

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.strategies.cuda.codegen import launch

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


ROWS = ScatterProblem(
    batch=SymbolicSize(),
    extents=(SymbolicSize(90),),
    slice=SymbolicSize(4),
    count=SymbolicSize(300),
    data_dtype="int32",
    index_dtype="int64",
    reduction="add",
)
LINES = replace(ROWS, batch=SymbolicSize(3), slice=SymbolicSize())
PROBLEMS = {
    "rows": ROWS,
    "lines": LINES,
    "boxes": replace(LINES, index_batch=True),
    "elements": replace(LINES, batch=SymbolicSize()),
    "writes": replace(ROWS, reduction="update", deterministic=True),
}


@pytest.mark.turns(2)
def test_every_implementation_has_room_for_wide_offsets(
    device: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors that need them are too large for a test, so the limit is low."""
    if device == "llvm":
        pytest.skip("it has 64 bits for all positions")
    monkeypatch.setattr(launch, "_NARROW_LIMIT", 16)
    strategy, target = strategy_for(device), target_of(device)
    assert strategy is not None
    chosen, runner = strategy.implementations[implementation], ProblemRunner(device)
    taken = {
        name: problem
        for name, problem in PROBLEMS.items()
        if strategy.refusal(chosen, problem, target) is None
    }
    if not taken:
        pytest.skip("it takes none of these")
    for name, problem in taken.items():
        runner.add(name, problem, implementation)
    for name, problem in taken.items():
        data, indices, updates = draw_operands(problem, seed=1)
        result = runner.run(name, data, indices, updates)
        assert_same(result, scatter_reference(problem, data, indices, updates), name)
