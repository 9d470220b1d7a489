"""The models of ``tvm-scatter demo`` agree with PyTorch."""

from __future__ import annotations

import subprocess

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import tvm
from cuda_on_cpu import real_gpu
from demo_programs import MODELS, exported, imported, made
from harness import target_of

import tvm_scatter
from tvm_scatter.demo.compare import Comparison, compare, compare_imported
from tvm_scatter.demo.stock import stock_says
from tvm_scatter.explain import STOCK
from tvm_scatter.passes import passes
from tvm_scatter.selection.targets import host_target

pytestmark = pytest.mark.optimised

#: Models in which TVM's own kernels reduce across a warp whose threads they take to run in step.
IN_STEP = ("GAT", "KV cache update", "Top-2 experts")
LLVM = tvm.target.Target("llvm")


def compared(name: str, target: tvm.target.Target) -> Comparison:
    """A model in its small size against PyTorch."""
    return compare_imported(
        imported(name), *made(name), MODELS[name].tolerance, target, measure=False
    )


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", MODELS)
def test_agrees(name, device):
    if device == "cuda" and name in IN_STEP and not real_gpu():
        pytest.skip("the simulated threads of a warp do not run in step")
    result = compared(name, target_of(device))
    assert result.right, result.max_error
    assert result.implementations
    assert STOCK not in result.implementations


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive) if name != "GCN" else name
        for name in MODELS
    ],
)
def test_agrees_when_deterministic(name):
    with tvm_scatter.options(deterministic=True):
        result = compared(name, LLVM)
    assert result.right, result.max_error


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_agrees_in_full_size(name):
    result = compare(MODELS[name], "full", target_of("cuda"), measure=False)
    assert result.right, result.max_error


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.turns(4)
def test_compiles_for_cuda(name):
    """Every scatter gets an implementation, and its CUDA holds a kernel for it."""
    target = tvm.target.Target("nvidia/nvidia-h100")
    mod = imported(name)
    explanations = tvm_scatter.explain(mod, target)
    assert all(explanation.choices for explanation in explanations)
    with target:
        mod = tvm.transform.Sequential(passes(tvm_scatter.current_options()))(mod)
        legalized = tvm.relax.transform.LegalizeOps()(mod)
    names = [name.name_hint for name in legalized.functions]
    for explanation in explanations:
        branches = dict.fromkeys(choice.implementation for choice in explanation.choices)
        made = f"scatter_{explanation.problem.reduction}_" + "_or_".join(branches)
        assert any(name.startswith(made) for name in names)


def test_what_stock_tvm_says():
    gcn = MODELS["GCN"]
    said = stock_says(exported("GCN"), gcn, "small", LLVM)
    assert said == "rejected: Unsupported function types ['scatter_add.default']"
    assert tvm_scatter.is_installed()


@pytest.mark.exhaustive
def test_what_stock_tvm_says_to_a_model_it_takes():
    pillars = MODELS["PointPillars scatter"]
    assert stock_says(exported("PointPillars scatter"), pillars, "small", LLVM) == "runs"


def test_stock_tvm_is_compiled_for_the_same_cpu(monkeypatch):
    """Its time stands beside ours, which has all instructions of this machine."""
    asked = []

    def look(command, **_):
        asked.append(tvm.target.Target(command[-1]))
        return subprocess.CompletedProcess(command, 0, stdout='"runs"')

    monkeypatch.setattr(subprocess, "run", look)
    pillars = MODELS["PointPillars scatter"]
    stock_says(exported("PointPillars scatter"), pillars, "full", host_target())
    assert [dict(each.attrs) for each in asked] == [dict(host_target().attrs)]
