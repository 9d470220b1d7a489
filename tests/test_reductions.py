"""One record says all of a reduction; each target adds the code that combines two values."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import pytest
from harness import ProblemRunner, run
from random_problems import draw_operands

from tvm_scatter import ScatterError, ScatterProblem, strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reductions import (
    FLOATS,
    INTEGERS,
    REDUCTIONS,
    Reduction,
    canonical_reduction,
    numpy_dtype,
)
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.strategies.cuda.codegen import source
from tvm_scatter.strategies.llvm.steps.combiners import COMBINERS, Combiner

BITWISE_OR = Reduction(
    name="bitwise_or",
    aliases=("bor",),
    combiner="bitwise_or",
    ufunc=np.bitwise_or,
    start=lambda dtype: 0,
    has_atomic=False,
    dtypes=INTEGERS,
)
STRUCT = """
#ifndef BITWISE_OR_DEFINED
#define BITWISE_OR_DEFINED
namespace tvm_scatter {
struct BitwiseOr {
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    return static_cast<T>(old | update);
  }
};
}
#endif
"""


@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_target_combines_by_it(name: str) -> None:
    reduction = REDUCTIONS[name]
    assert reduction.combiner in COMBINERS, "strategies/llvm/steps/combiners.py has none"
    device = resources.files("tvm_scatter.strategies.cuda") / "device" / "reduction.cuh"
    structs = re.findall(r"^struct (\w+)", device.read_text(encoding="utf-8"), re.MULTILINE)
    assert source.combiner_struct(reduction) in structs, "device/reduction.cuh has none"


@pytest.mark.parametrize("name", REDUCTIONS)
def test_names_are_unique(name: str) -> None:
    reduction = REDUCTIONS[name]
    for each in (name, *reduction.aliases):
        assert canonical_reduction(each, "here") == name


def test_a_store_alone_has_no_identity() -> None:
    for reduction in REDUCTIONS.values():
        assert reduction.is_store == (reduction.start is None) == (reduction.ufunc is None)
    with pytest.raises(ScatterError, match="reduction 'update' has no identity"):
        REDUCTIONS["update"].identity("float32")


@pytest.mark.parametrize("name", [name for name in REDUCTIONS if not REDUCTIONS[name].is_store])
def test_the_identity_leaves_every_value(name: str) -> None:
    reduction = REDUCTIONS[name]
    assert reduction.ufunc is not None
    for dtype in reduction.dtypes:
        values = np.array([-2, -1, 0, 1, 2]).astype(numpy_dtype(dtype))
        if dtype in FLOATS:
            values = np.append(values, np.array([-0.0, np.inf, -np.inf], values.dtype))
        start = np.array(reduction.identity(dtype)).astype(values.dtype)
        combined = reduction.ufunc(start, values)
        assert combined.dtype == values.dtype
        assert combined.tobytes() == values.tobytes()


@pytest.fixture
def bitwise_or(monkeypatch: pytest.MonkeyPatch) -> Reduction:
    """A reduction more, for this test: its record, and a combiner for each kind of target."""

    def combine(old: Any, update: Any, _dtype: str) -> Any:
        return old | update

    def with_struct(names: tuple[str, ...]) -> str:
        return headers(names) + STRUCT

    headers = source.headers
    monkeypatch.setitem(REDUCTIONS, BITWISE_OR.name, BITWISE_OR)
    monkeypatch.setitem(COMBINERS, BITWISE_OR.combiner, Combiner(combine, combine, combine))
    monkeypatch.setattr(source, "headers", with_struct)
    return BITWISE_OR


def test_a_record_and_combiners_are_all_that_a_reduction_takes(
    device: str, bitwise_or: Reduction
) -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(64),),
        slice=SymbolicSize(),
        count=SymbolicSize(900),
        data_dtype="int32",
        index_dtype="int64",
        reduction=bitwise_or.name,
    )
    posed = {"included": problem, "alone": replace(problem, include_self=False)}
    runner = ProblemRunner(device)
    strategy = strategy_for(device)
    assert strategy is not None
    cases = {
        f"{what}_{name}": each
        for what, each in posed.items()
        for name in strategy.applicable(each, runner.target)
    }
    assert len(cases) > 6
    for name, each in cases.items():
        runner.add(name, each, name.split("_", 1)[1])
    for name, each in cases.items():
        data, indices, updates = draw_operands(each, 5)
        expected = scatter_reference(each, data, indices, updates)
        assert np.array_equal(runner.run(name, data, indices, updates), expected), name


def test_operators_take_it_by_every_name(bitwise_or: Reduction) -> None:
    data, index = np.array([1, 2, 4], "int32"), np.array([0, 0, 2], "int64")
    updates = np.array([2, 8, 1], "int32")
    for name in (bitwise_or.name, *bitwise_or.aliases):
        found = run(
            lambda d, i, u, name=name: index_put(d, [i], u, [0], name), (data, index, updates)
        )
        assert found.tolist() == [11, 2, 5]


def test_what_it_does_not_take_is_refused(bitwise_or: Reduction) -> None:
    data, index = np.ones(3, "float32"), np.zeros(3, "int64")
    with pytest.raises(
        ScatterError, match="reduction 'bitwise_or' of data of type float32 is not supported"
    ):
        run(lambda d, i, u: index_put(d, [i], u, [0], "bitwise_or"), (data, index, data))
