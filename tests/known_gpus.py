"""GPUs that costs predict for, whichever is in the machine that runs the tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_cases import cuda_target

from tvm_scatter import strategy_for
from tvm_scatter.strategies.cuda import machines
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit


def predict_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the costs of ``sm_90`` predict for a GPU of this name, such as ``H100``."""
    strategy = strategy_for("cuda")
    assert strategy is not None
    machine = machines.named(name, shared_memory_limit(cuda_target("sm_90")))
    there = replace(strategy.backend, machine=lambda _target: machine, device_name=lambda _: "")
    monkeypatch.setattr(strategy, "backend", there)
    monkeypatch.setattr(machines, "machine_of", lambda _target: machine)


@pytest.fixture
def on_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs predict for what the shipped log, the fitted costs and the benchmark are of."""
    predict_for(monkeypatch, "H200")
