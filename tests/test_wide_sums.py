"""Reductions of 16-bit floats that are no scatters: kept in single precision, and rounded once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from cuda_on_cpu import record, status
from harness import device_of, run_all, target_of
from tvm import relax
from tvm.script import tirx as T

import tvm_scatter
from tvm_scatter.problem.reductions import HALVES, numpy_dtype

#: Relative differences of one rounding.
PLACES = {"float16": 2**-11, "bfloat16": 2**-8}
SHAPES = [((5000, 3), [0]), ((3, 5000), [1]), ((2, 3, 8, 4), [1, 3]), ((700, 7), [0, 1])]


@pytest.mark.parametrize("dtype", HALVES)
def test_ones(dtype: str, device: str) -> None:
    """2048 is the largest sum of ones in float16, 256 in bfloat16."""
    x = np.ones((5000, 3), numpy_dtype(dtype))
    calls: dict[str, Any] = {
        "sum": (partial(relax.op.sum, axis=[0]), [x]),
        "mean": (partial(relax.op.mean, axis=[0]), [x]),
    }
    found = run_all(calls, device)
    assert found["sum"].astype("float64").tolist() == [5000 if dtype == "float16" else 4992] * 3
    assert found["mean"].astype("float64").tolist() == [1] * 3


def test_a_count_that_float16_has_not(device: str) -> None:
    calls: dict[str, Any] = {
        "mean": (partial(relax.op.mean, axis=[0]), [np.ones(70000, "float16")])
    }
    assert float(run_all(calls, device)["mean"]) == 1


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_reductions(shape: tuple[int, ...], axis: list[int], dtype: str, device: str) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(numpy_dtype(dtype))
    reductions = {
        "sum": (relax.op.sum, np.sum),
        "mean": (relax.op.mean, np.mean),
        "max": (relax.op.max, np.max),
        "min": (relax.op.min, np.min),
        "variance": (relax.op.variance, np.var),
        "std": (relax.op.std, np.std),
    }
    calls: dict[str, Any] = {
        name: (partial(ours, axis=axis), [x]) for name, (ours, _) in reductions.items()
    }
    for name, found in run_all(calls, device).items():
        wanted = reductions[name][1](x.astype("float64"), axis=tuple(axis))
        np.testing.assert_allclose(
            found.astype("float64"), wanted, rtol=1.1 * PLACES[dtype], err_msg=name
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_products_and_infinities(dtype: str, device: str) -> None:
    x = np.full((4, 64), 1 + 2.0**-7, numpy_dtype(dtype))
    x[1], x[2, 1], x[3, 2] = -np.inf, np.inf, np.nan
    calls: dict[str, Any] = {
        "prod": (partial(relax.op.prod, axis=[1]), [x[:1]]),
        "max": (partial(relax.op.max, axis=[1]), [x[:3]]),
        "min": (partial(relax.op.min, axis=[1]), [-x[:3]]),
    }
    found = {name: each.astype("float64") for name, each in run_all(calls, device).items()}
    np.testing.assert_allclose(found["prod"], [(1 + 2.0**-7) ** 64], rtol=2 * PLACES[dtype])
    assert found["max"].tolist() == [1 + 2.0**-7, -np.inf, np.inf]
    assert found["min"].tolist() == [-(1 + 2.0**-7), np.inf, -np.inf]


@pytest.mark.parametrize("schedules", [False, True])
def test_what_is_fused_and_how_it_is_scheduled(schedules: bool, device: str) -> None:
    """A sum between other functions, of a size that is not known, with and without schedules."""
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 5), "float16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit(relax.op.multiply(x, relax.const(2.0, "float16")))
            added = builder.emit(relax.op.sum(doubled, 0))
            result = builder.emit_output(relax.op.subtract(added, relax.const(4.0, "float16")))
        builder.emit_func_output(result)
    target = target_of(device)
    pipeline = tvm_scatter.pipeline(target, schedule=schedules)
    machine = relax.VirtualMachine(
        tvm.compile(builder.get(), target, relax_pipeline=pipeline), device_of(device)
    )
    for count in (0, 1, 3000):
        given = tvm.runtime.tensor(np.ones((count, 5), "float16"), device_of(device))
        np.testing.assert_array_equal(machine["main"](given).numpy(), [2 * count - 4] * 5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.each_device
def test_whole_tensors(dtype: str, device: str) -> None:
    """What computes on the sum of a tensor takes few launches, however many elements there are."""
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 7), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            added = builder.emit(relax.op.sum(x, [0, 1]))
            result = builder.emit_output(relax.op.add(added, relax.const(1.0, dtype)))
        builder.emit_func_output(result)
    target = target_of(device)
    machine = relax.VirtualMachine(
        tvm.compile(builder.get(), target, relax_pipeline=tvm_scatter.pipeline(target)),
        device_of(device),
    )
    for count in (0, 1, 512):
        ones = np.ones((count, 7), numpy_dtype(dtype))
        given = tvm.runtime.tensor(ones, device_of(device))
        found = machine["main"](given).numpy()
        assert float(found) == float(np.asarray(7.0 * count + 1).astype(numpy_dtype(dtype)))
        if device == "cuda" and status():
            with record() as log:
                machine["main"](given)
            assert len(log.launches) <= 3


@T.prim_func(s_tir=True)
def begun(x: T.Buffer((4, 8), "float16"), result: T.Buffer((4,), "float16")):
    T.func_attr({"tirx.noalias": True})
    for i, k in T.grid(4, 8):
        with T.sblock("greatest"):
            row, column = T.axis.remap("SR", [i, k])
            with T.init():
                result[row] = T.float16(0)
            result[row] = T.max(result[row], x[row, column])


def test_what_a_function_begins_with_stays(device: str) -> None:
    """A function of the user's whose maxima are those of zero, too."""
    x = relax.Var("x", relax.TensorType((4, 8), "float16"))
    builder = relax.BlockBuilder()
    function = builder.add_func(begun, "begun")
    with builder.function("main", [x]):
        result = relax.call_tir(function, [x], relax.TensorType((4,), "float16"))
        builder.emit_func_output(builder.emit(result))
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of(device)), device_of(device))
    given = np.repeat([[-1], [2], [-np.inf], [0.5]], 8, axis=1).astype("float16")
    found = machine["main"](tvm.runtime.tensor(given, device_of(device))).numpy()
    assert found.tolist() == [0, 2, 0, 0.5]
