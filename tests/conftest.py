"""Devices that the tests run on: the CPU, CUDA executed on the CPU, and a GPU if there is one.

How to write a test that costs little is said in docs/testing.md.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import quick_code
import quick_export
import quick_stack
import worker_threads
from cuda_on_cpu import enable, real_gpu, status
from tally import summary, tally  # noqa: F401
from turns import take_turns

# What the user of this machine has measured must not decide what the tests see.
os.environ["TVM_SCATTER_DATA_DIR"] = "/nonexistent/tvm_scatter"
# Before anything imports TVM: afterwards the real driver could be loaded already.
enable()
worker_threads.enable()
quick_stack.enable()
quick_code.enable()

from known_gpus import on_an_h200  # noqa: E402, F401

from tvm_scatter import strategy_for  # noqa: E402
from tvm_scatter.bounds import device_check  # noqa: E402

DEVICES = ("llvm", "cuda", pytest.param("gpu", marks=pytest.mark.gpu))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    take_turns(items)
    if real_gpu():
        return
    skip = pytest.mark.skip(reason="there is no GPU")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """What TVM, PyTorch and the tests are made of stays: a collector need not look at it again.

    Nor need it look for new garbage as often as in a program with little memory.
    """
    quick_export.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marks = ("optimised", "exhaustive")
    quick_code.optimise(any(item.get_closest_marker(mark) for mark in marks))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = summary(report for reports in terminalreporter.stats.values() for report in reports)
    if lines:
        terminalreporter.section("tried, and found right")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cross ``device`` with ``implementation``, as the strategy's tables have them."""
    if "implementation" in metafunc.fixturenames:
        pairs = [
            pytest.param(device, name, marks=pytest.mark.gpu if device == "gpu" else ())
            for device in ("llvm", "cuda", "gpu")
            for name in _implementations(device)
        ]
        metafunc.parametrize(("device", "implementation"), pairs, indirect=["device"])
    elif "device" in metafunc.fixturenames:
        metafunc.parametrize("device", DEVICES, indirect=True)


def _implementations(device: str) -> list[str]:
    strategy = strategy_for("llvm" if device == "llvm" else "cuda")
    every = {} if strategy is None else strategy.implementations
    # What takes an order is forced by giving one: see test_ordered.py, and test_fuse_softmax.py.
    return [name for name, each in every.items() if each.takes_plain]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """``llvm`` or ``cuda``: what :mod:`harness` compiles for."""
    if request.param == "cuda" and not status():
        pytest.skip(status().reason)
    return "llvm" if request.param == "llvm" else "cuda"


@pytest.fixture(params=["cuda", pytest.param("gpu", marks=pytest.mark.gpu)])
def on_cuda(request: pytest.FixtureRequest) -> str:
    """``cuda``, of a simulated device or a GPU: for what CPUs have no like of."""
    if request.param == "cuda" and not status():
        pytest.skip(status().reason)
    return "cuda"


@pytest.fixture(params=["checked", "on_drop"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who finds bad indices on a GPU if not in advance: a kernel of its own, or the scatter."""
    least = 0 if request.param == "on_drop" else 1 << 60
    monkeypatch.setattr(device_check, "_ON_DROP_BYTES", least)
    return str(request.param)


@pytest.fixture
def quick_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """New processes find no PyTorch, which TVM loads where it can; it takes longer than TVM."""
    folder = str(Path(__file__).parent / "without_torch")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder, prepend=os.pathsep)


@pytest.fixture
def quick_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM's tuner on a slow machine, without tensor instructions, which take long to load."""
    from tvm.s_tir import meta_schedule as ms

    def skip_tensor_instructions() -> None:
        name = "tvm.s_tir.tensor_intrin"
        sys.modules.setdefault(name, ModuleType(name))

    name = "tvm.s_tir.tensor_intrin"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    patient: dict[str, Any] = {"timeout_sec": 300, "initializer": skip_tensor_instructions}
    for module, kind in ((ms.builder, "LocalBuilder"), (ms.runner, "LocalRunner")):
        monkeypatch.setattr(module, kind, partial(getattr(module, kind), **patient))
