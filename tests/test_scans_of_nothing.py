"""Scans and sorts along an axis, or of lines, of which the run time finds none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tvm
from cuda_on_cpu import real_gpu, record
from harness import device_of, target_of
from tvm import relax, tirx

import tvm_scatter  # noqa: F401

OPERATORS = {
    "cumsum": relax.op.cumsum,
    "cumprod": relax.op.cumprod,
    "sort": relax.op.sort,
    "argsort": lambda x, axis: relax.op.argsort(x, axis, dtype="int64"),
}
ROWS = 4


def add_function(builder: relax.BlockBuilder, name: str, axis: int, empty: int, at: str) -> None:
    """An operator on a matrix of which one size is symbolic."""
    shape: list[Any] = [ROWS, ROWS]
    shape[empty] = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function(at, [x]):
        with builder.dataflow():
            output = builder.emit_output(OPERATORS[name](x, axis))
        builder.emit_func_output(output)


def program(name: str, axis: int, empty: int) -> tvm.IRModule:
    """A module of one operator."""
    builder = relax.BlockBuilder()
    add_function(builder, name, axis, empty, "main")
    return builder.get()


@pytest.mark.parametrize("empty", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_nothing_is_written_on_a_cpu(name: str, axis: int, empty: int) -> None:
    target = target_of("llvm")
    with target:
        mod = relax.get_default_pipeline(target)(program(name, axis, empty))
    scan = tvm.compile(mod[name].with_attr("global_symbol", name), target)
    given, memory = (tvm.runtime.tensor(np.full(ROWS, x, "float32")) for x in (5, 7))
    shape = (0, ROWS) if empty == 0 else (ROWS, 0)
    scan(given._create_view(shape), memory._create_view(shape))
    assert (memory.numpy() == 7).all()


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", list(OPERATORS))
def test_no_lines_or_empty_ones(name: str, device: str) -> None:
    """On a simulated device, nothing is launched for them."""
    builder = relax.BlockBuilder()
    cases = {f"along_{axis}_empty_{empty}": (axis, empty) for axis in (0, 1) for empty in (0, 1)}
    for at, case in cases.items():
        add_function(builder, name, *case, at)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of(device)), device_of(device))
    for at, (_, empty) in cases.items():
        shape = (0, ROWS) if empty == 0 else (ROWS, 0)
        x = tvm.runtime.empty(shape, "float32", device_of(device))
        with nullcontext() if real_gpu() else record() as log:
            assert tuple(machine[at](x).shape) == shape, at
        assert log is None or not log.launches, at


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", list(OPERATORS))
def test_some_lines(name: str, device: str) -> None:
    machine = relax.VirtualMachine(
        tvm.compile(program(name, 0, 0), target_of(device)), device_of(device)
    )
    array = np.random.default_rng(0).random((3, ROWS)).astype("float32")
    found = machine["main"](tvm.runtime.tensor(array, device_of(device))).numpy()
    expected = getattr(np, name)(array, axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
