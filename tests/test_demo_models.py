"""The models of ``tvm-scatter demo`` agree with PyTorch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import tvm

import tvm_scatter
from tvm_scatter.demo import demo_models
from tvm_scatter.demo.compare import compare, export, import_program, make
from tvm_scatter.demo.stock import stock_says
from tvm_scatter.explain import STOCK
from tvm_scatter.targets import gpu_target

MODELS = {model.name: model for model in demo_models()}
LLVM = tvm.target.Target("llvm")


@pytest.mark.parametrize("deterministic", [False, True], ids=["", "deterministic"])
@pytest.mark.parametrize("name", MODELS)
def test_agrees_on_cpu(name, deterministic):
    with tvm_scatter.options(deterministic=deterministic):
        result = compare(MODELS[name], "small", LLVM, measure=False)
    assert result.right, result.max_error
    assert result.implementations
    assert STOCK not in result.implementations


@pytest.mark.gpu
@pytest.mark.parametrize("size", ["small", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_agrees_on_gpu(name, size):
    target = gpu_target()
    if target is None:
        pytest.skip("no GPU")
    result = compare(MODELS[name], size, target, measure=False)
    assert result.right, result.max_error


@pytest.mark.parametrize("name", MODELS)
def test_compiles_for_cuda(name):
    """Every scatter gets an implementation, and its CUDA holds a kernel for it."""
    target = tvm.target.Target("nvidia/nvidia-h100")
    mod = import_program(export(*make(MODELS[name], "small")))
    explanations = tvm_scatter.explain(mod, target)
    assert all(explanation.choices for explanation in explanations)
    with target:
        legalized = tvm.relax.transform.LegalizeOps()(mod)
    names = [name.name_hint for name in legalized.functions]
    for explanation in explanations:
        branches = dict.fromkeys(choice.implementation for choice in explanation.choices)
        made = f"scatter_{explanation.problem.reduction}_" + "_or_".join(branches)
        assert any(name.startswith(made) for name in names)


def test_what_stock_tvm_says():
    gcn = MODELS["GCN"]
    said = stock_says(export(*make(gcn, "small")), gcn, "small", LLVM)
    assert said == "rejected: Unsupported function types ['scatter_add.default']"
    assert tvm_scatter.is_installed()


def test_what_stock_tvm_says_to_a_model_it_takes():
    pillars = MODELS["PointPillars scatter"]
    assert stock_says(export(*make(pillars, "small")), pillars, "small", LLVM) == "runs"
