"""``explain`` tells what compilation does."""

from __future__ import annotations

import json

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_scatter
from tvm_scatter.ops.operators import scatter_elements

LLVM = tvm.target.Target("llvm")
CUDA = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})


@I.ir_module
class Rows:
    @R.function
    def main(
        data: R.Tensor((1000, 16), "float32"),
        index: R.Tensor((500,), "int64"),
        updates: R.Tensor((500, 16), "float32"),
    ):
        with R.dataflow():
            column = R.expand_dims(index, axis=[1])
            wide = R.broadcast_to(column, (500, 16))
            out = R.scatter_elements(data, wide, updates, axis=0, reduction="add")
            R.output(out)
        return out


@I.ir_module
class Several:
    @R.function
    def main(
        data: R.Tensor(("n", 4), "float32"),
        index: R.Tensor(("k", 4), "int64"),
        updates: R.Tensor(("k", 4), "float32"),
    ):
        _n, _k = T.int64(), T.int64()

        @R.function
        def inner(
            d: R.Tensor((8,), "float32"), i: R.Tensor((3, 1), "int32"), u: R.Tensor((3,), "float32")
        ) -> R.Tensor((8,), "float32"):
            put = R.scatter_nd(d, i, u)
            return put

        first = R.scatter_elements(data, index, updates, axis=0)
        return first


def chosen_names(mod, target):
    """The implementations in the names of the functions that compilation makes."""
    with target:
        legalized = tvm_scatter.passes.FoldBroadcastIndex()(mod)
        legalized = relax.transform.LegalizeOps()(legalized)
    return [name.name_hint for name in legalized.functions]


def test_the_index_is_seen_per_row():
    (explanation,) = tvm_scatter.explain(Rows, LLVM)
    assert explanation.operator == "scatter_elements"
    assert explanation.where.startswith("main.")
    assert not explanation.problem.index_slice
    assert explanation.problem.slice.constant == 16


@pytest.mark.parametrize("target", [LLVM, CUDA], ids=["llvm", "cuda"])
@pytest.mark.parametrize("mod", [Rows, Several], ids=["rows", "several"])
@pytest.mark.parametrize("forced", [None, "sequential"])
def test_the_same_choice_as_compilation(mod, target, forced):
    with tvm_scatter.options(implementation=forced):
        explanations = tvm_scatter.explain(mod, target)
        names = chosen_names(mod, target)
    for explanation in explanations:
        assert explanation.source == ("forced" if forced else "default")
        branches = dict.fromkeys(choice.implementation for choice in explanation.choices)
        name = f"scatter_{explanation.problem.reduction}_" + "_or_".join(branches)
        assert any(made.startswith(name) for made in names), (name, names)


def test_nested_functions_and_symbols():
    nested, outer = tvm_scatter.explain(Several, LLVM)
    assert nested.where == "main.inner.put"
    assert nested.operator == "scatter_nd"
    assert set(outer.symbols.values()) == {"n", "k"}
    assert "data (1, n, 4)" in str(outer)


def test_alternatives_and_refusals():
    with tvm_scatter.options(deterministic=True):
        (explanation,) = tvm_scatter.explain(Rows, CUDA)
    assert "parallel_injective" in explanation.alternatives
    assert explanation.alternatives["parallel_injective"]
    assert "refused   parallel_injective: it is not deterministic" in str(explanation)
    names = {choice.implementation for choice in explanation.choices} | set(
        explanation.alternatives
    )
    assert names == set(tvm_scatter.strategy_for("cuda").implementations)


def test_stock_operators():
    (off,) = tvm_scatter.explain(Rows, tvm.target.Target("c"))
    assert off.implementation is None
    assert "no strategy for target c" in off.reason
    with tvm_scatter.options(enabled=False):
        (off,) = tvm_scatter.explain(Rows, LLVM)
    assert "switched off" in off.reason


@pytest.mark.parametrize(
    ("extent", "count", "bounds", "reason"),
    [
        (8, 0, "raise", "there is nothing to write"),
        (0, 2, "raise", "there is nothing to write; indices are checked"),
        (0, 2, "drop", "there is nothing to write"),
    ],
)
def test_nothing_to_write(extent, count, bounds, reason):
    bb = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((extent, 4), "float32"))
    index = relax.Var("index", relax.TensorType((count, 4), "int64"))
    updates = relax.Var("updates", relax.TensorType((count, 4), "float32"))
    with bb.function("main", [data, index, updates]):
        bb.emit_func_output(bb.emit(scatter_elements(data, index, updates)))
    with tvm_scatter.options(bounds=bounds):
        (explanation,) = tvm_scatter.explain(bb.get(), LLVM)
    assert explanation.choices == ()
    assert explanation.reason == reason


def test_plain_data():
    explanations = tvm_scatter.explain(Several, "llvm")
    assert json.loads(json.dumps(explanations.to_dict()))[1]["choices"][0]["implementation"]
    assert str(explanations).count("because") == 2
    assert str(tvm_scatter.explain(tvm.IRModule(), "llvm")) == "no scatter"


def test_a_malformed_call_is_one_error():
    bb = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((8, 4), "float32"))
    index = relax.Var("index", relax.TensorType((3, 5), "int64"))
    updates = relax.Var("updates", relax.TensorType((3, 5), "float32"))
    with bb.function("main", [data, index, updates]):
        bb.emit_func_output(bb.emit(scatter_elements(data, index, updates)))
    with pytest.raises(tvm_scatter.ScatterError, match="larger than data"):
        tvm_scatter.explain(bb.get(), LLVM)


def test_what_is_no_module_is_not_explained() -> None:
    with pytest.raises(tvm_scatter.ScatterError, match="it takes an IRModule, not int"):
        tvm_scatter.explain(7)
