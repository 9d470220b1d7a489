"""A deterministic implementation gives the same bits for every launch, static or symbolic."""

from __future__ import annotations

import numpy as np
import pytest
from harness import ProblemRunner
from tally import Tally

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.problem.symbolic_size import SymbolicSize

pytestmark = pytest.mark.optimised

SIZES = {"n": 40, "s": 6, "k": 3000}


def problem(reduction: str, width: int, symbolic: bool) -> ScatterProblem:
    """Many updates of few places, whose sum depends on the order."""
    n, s, k = (
        SymbolicSize.product([name if symbolic else size])
        for name, size in {**SIZES, "s": width}.items()
    )
    return ScatterProblem(
        batch=SymbolicSize(),
        extents=(n,),
        slice=s,
        count=k,
        data_dtype="float32",
        index_dtype="int32",
        reduction=reduction,
        deterministic=True,
    )


def test_launches_and_symbolic_sizes_do_not_change_a_bit(device: str, tally: Tally) -> None:
    strategy = strategy_for(device)
    assert strategy is not None
    runner = ProblemRunner(device)
    ways: dict[str, list[str]] = {}
    for reduction, width in (("add", 6), ("update", 1)):
        static = problem(reduction, width, symbolic=False)
        for name, implementation in strategy.applicable(static, runner.target).items():
            kind = f"{reduction}_{width}_{name}"
            configs = [{}] + [
                {knob: value}
                for knob, values in implementation.knobs(static, runner.target).items()
                for value in {values[-1]} - {values[0]}
            ]
            for i, knobs in enumerate(configs):
                runner.add(f"{kind}_{i}", static, name, knobs)
                ways.setdefault(kind, []).append(f"{kind}_{i}")
            symbolic = problem(reduction, width, symbolic=True)
            if strategy.refusal(implementation, symbolic, runner.target) is None:
                runner.add(f"{kind}_symbolic", symbolic, name, sizes={**SIZES, "s": width})
                ways[kind].append(f"{kind}_symbolic")
    generator = np.random.default_rng(5)
    index = np.minimum(generator.zipf(1.5, SIZES["k"]) - 1, SIZES["n"] - 1).astype("int32")
    compared = 0
    for kind, names in ways.items():
        width = int(kind.split("_")[1])
        data = generator.standard_normal(SIZES["n"] * width, "float32")
        updates = generator.standard_normal(SIZES["k"] * width, "float32")
        results = [runner.run(name, data, [index], updates).tobytes() for name in names]
        for name, result in zip(names, results, strict=True):
            assert result == results[0], name
        compared += len(results) - 1
    assert compared >= 6
    tally("results compared bit by bit", compared)


def test_rounding_shows_another_order() -> None:
    """The operands are such that another order of adding would be seen."""
    generator = np.random.default_rng(5)
    updates = generator.standard_normal(SIZES["k"], "float32")
    total = np.float32(0)
    backwards = np.float32(0)
    for value in updates:
        total += value
    for value in updates[::-1]:
        backwards += value
    assert total != backwards
    assert problem("add", 1, False).needs_order
