"""TVM's own pipelines, and its tuner, over the models of the demonstration: PyTorch's answers."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch
import tvm
from demo_programs import MODELS, imported, made
from harness import device_of, target_of
from test_demo_models import IN_STEP
from tvm import relax

from tvm_scatter.demo.compare import difference, outputs, runner

TRIALS = 8
#: The model that every run compiles; the rest take minutes.
QUICK = "GCN"


def legalized(mod, target, _folder):
    """LegalizeOps by hand."""
    with target:
        mod = relax.transform.LegalizeOps()(mod)
    return tvm.compile(mod, target)


def zero(mod, target, _folder):
    with target:
        mod = relax.get_pipeline("zero")(mod)
    return tvm.compile(mod, target)


def named(name):
    def build(mod, target, _folder):
        return tvm.compile(mod, target, relax_pipeline=name)

    return build


def compiled(mod, target, _folder):
    """The virtual machine's code as machine code, too."""
    return relax.build(mod, target, exec_mode="compiled")


def tuning(trials):
    def build(mod, target, folder):
        pipeline = relax.get_pipeline(
            "static_shape_tuning", total_trials=trials, target=target, work_dir=str(folder)
        )
        return tvm.compile(pipeline(mod), target)

    return build


FLOWS = {
    "LegalizeOps": legalized,
    "zero": zero,
    "default": named("default"),
    "compiled": compiled,
    "static_shape_tuning": tuning(0),
}


def check(name, build, target, device, folder):
    """A model that was compiled so gives what PyTorch gives."""
    model = MODELS[name]
    module, inputs = made(name)
    executable = build(imported(name), target, folder)
    with torch.no_grad():
        expected = [tensor.numpy() for tensor in outputs(module(*inputs))]
    found = outputs(runner(executable, device_of(device), inputs)())
    error, right = difference([each.numpy() for each in found], expected, model.tolerance)
    assert right, error


def pairs():
    """Every model by every flow; all but one of the models only where all is asked for."""
    return [
        pytest.param(name, flow, marks=() if name == QUICK else pytest.mark.exhaustive)
        for name in MODELS
        for flow in FLOWS
    ]


@pytest.mark.parametrize(("name", "flow"), pairs())
def test_flows(name, flow, tmp_path):
    check(name, FLOWS[flow], target_of("llvm"), "llvm", tmp_path)


def test_the_pipeline_for_a_cpu(tmp_path):
    """It schedules nothing for a GPU."""
    check(QUICK, named("default_build"), target_of("llvm"), "llvm", tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in IN_STEP])
def test_flows_on_a_gpu(name, flow, device, tmp_path):
    if device == "cuda":
        check(name, FLOWS[flow], target_of(device), device, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_tuned(name, quick_tuner, tmp_path):
    """TVM's tuner takes the whole model, and measures some of it."""
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    check(name, tuning(TRIALS), target, "llvm", tmp_path)
    assert (tmp_path / "database_tuning_record.json").read_text()
