"""Of unknown sizes, the implementation that is predicted to take least is chosen when they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from harness import relax_function, signature_of, target_of
from tvm import relax
from tvm.tirx.script import builder as T

from tvm_scatter import Implementation, ScatterProblem
from tvm_scatter.lowering.emission import build_prim_func
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.arithmetic import is_at_most
from tvm_scatter.selection.cost import Prediction
from tvm_scatter.selection.strategy import Branch, Selection
from tvm_scatter.selection.undominated import for_sizes_taken, undominated

#: What each of some implementations takes for a number of updates.
TIMES = (
    lambda count: 40.0 + 0.0 * count,
    lambda count: 1.0 * count,
    lambda count: 20.0 + 0.25 * count,
    lambda count: 20.0 + 0.25 * count,
    lambda count: 30.0 + 0.0 * count,
)


class Writes(Implementation):
    """Writes a number to the output."""

    name = "writes"

    def __init__(self, number: int) -> None:
        self.number = number

    def emit(self, operands: Any, config: Any) -> None:
        T.buffer_store(operands.out, T.float32(self.number), [0])


def test_the_branch_that_takes_least_runs() -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(1),),
        slice=SymbolicSize(),
        count=SymbolicSize(1, ("n",)),
        data_dtype="float32",
        index_dtype="int64",
    )
    branches = tuple(
        Branch(
            Writes(number),
            {},
            lambda sizes, time=time: Prediction(time(tvm.tirx.Cast("float64", sizes.count)), {}),
        )
        for number, time in enumerate(TIMES)
    )
    selection = Selection(branches, "default", "of several")
    function = build_prim_func(problem, signature_of(problem), selection, target_of("llvm"))
    compiled = tvm.compile(function.with_attr("global_symbol", "main"), target_of("llvm"))
    data, out = (tvm.runtime.tensor(np.zeros(1, "float32")) for _ in range(2))
    chosen = {}
    for count in (1, 25, 27, 39, 41, 79, 100):
        index, updates = np.zeros(count, "int64"), np.zeros(count, "float32")
        compiled["main"](data, tvm.runtime.tensor(index), tvm.runtime.tensor(updates), out)
        chosen[count] = int(out.numpy()[0])
    times = {count: [time(count) for time in TIMES] for count in chosen}
    assert chosen == {count: each.index(min(each)) for count, each in times.items()}
    assert set(chosen.values()) == {1, 2, 4}


def test_there_is_one_that_takes_all_sizes() -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(1, ("n",)),),
        slice=SymbolicSize(),
        count=SymbolicSize(1, ("e",)),
        data_dtype="float32",
        index_dtype="int64",
    )
    ways = {
        name: lambda sizes, time=time: Prediction(time + 0.0 * sizes.count, {})
        for name, time in (("fast", 1.0), ("slow", 9.0), ("slower", 10.0))
    }
    assert undominated(problem, ways) == ["fast"]
    assert undominated(problem, ways, {"fast"}) == ["fast", "slow"]
    assert undominated(problem, ways, {"fast", "slow"}) == ["fast", "slower"]

    few = for_sizes_taken(ways["fast"], lambda sizes: is_at_most(sizes.extent, 9))
    assert [few(Sizes.of(problem, {"n": n, "e": 1})).microseconds < 2 for n in (9, 10)] == [
        True,
        False,
    ]


def test_a_choice_stays_small_when_it_is_simplified() -> None:
    """TVM simplifies a function a dozen times; half a minute, where it grew with each."""
    builder = relax.BlockBuilder()
    arrays = np.zeros((4, 3), "float32"), np.zeros(5, "int64"), np.zeros((5, 3), "float32")

    def add(data: Any, index: Any, updates: Any) -> Any:
        return index_put(data, [index], updates, reduction="add")

    relax_function(builder, "main", add, arrays, symbolic=True)
    with target_of("cuda"):
        mod = relax.transform.LegalizeOps()(builder.get())
        assert "_or_" in str([each.name_hint for each in mod.get_global_vars()])
        simplified = tvm.s_tir.transform.StmtSimplify()(mod)
    assert len(simplified.script()) < len(mod.script()) + 50_000
