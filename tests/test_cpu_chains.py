"""Long chains of elementwise operators, whose values are read several times, compile on CPUs."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
from harness import run
from tvm import relax, tirx

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.schedules.cpu import scheduled_for_cpu

#: Seconds for what takes one or two, and would take hours if each value were computed anew.
_LIMIT = 60


def recurrence(steps):
    """A maximum of the last value, which stands in it four times, plus an exponential of it."""

    def build(first, *others):
        emit = relax.BlockBuilder.current().emit
        last = first
        for at in range(steps):
            other = others[at % len(others)]
            greatest = emit(relax.op.maximum(last, other))
            power = emit(relax.op.exp(emit(relax.op.subtract(other, last))))
            last = emit(relax.op.add(greatest, power))
        return last

    return build


def reference(steps, first, *others):
    last = first
    for at in range(steps):
        other = others[at % len(others)]
        last = np.maximum(last, other) + np.exp(other - last)
    return last


def doubled(steps):
    """Sums of products, without any choice: the expression doubles in each step."""

    def build(value):
        emit = relax.BlockBuilder.current().emit
        for _ in range(steps):
            half = emit(relax.op.multiply(value, relax.const(0.5, "float32")))
            value = emit(relax.op.add(emit(relax.op.multiply(half, value)), half))
        return value

    return build


def scheduled(build, *shapes):
    """The functions that compute an expression."""
    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(f"p{at}", relax.TensorType(shape, "float32")) for at, shape in enumerate(shapes)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(build(*parameters))
        builder.emit_func_output(result)
    target = tvm.target.Target("llvm")
    with target:
        mod = scheduled_for_cpu(builder.get(), target)
    return [each for each in mod.functions.values() if isinstance(each, tirx.PrimFunc)]


def stores(functions):
    return [each for function in functions for each in all_of(function.body, tirx.BufferStore)]


def drawn(*shapes):
    generator = np.random.default_rng(0)
    return [generator.uniform(0, 1, shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("build", [recurrence(14), lambda a, _: doubled(14)(a)])
def test_expressions_stay_short(build):
    functions = scheduled(build, (64, 32), (64, 32))
    lengths = [len(all_of(store.value, tvm.ir.Expr)) for store in stores(functions)]
    assert max(lengths) < 10_000
    assert len(lengths) < 16


@pytest.mark.parametrize("shape", [(3,), (5, 7), (64, 32)])
def test_recurrences(shape):
    arrays = drawn(shape, shape, shape)
    start = time.monotonic()
    found = run(recurrence(12), arrays, schedule=True)
    assert time.monotonic() - start < _LIMIT
    np.testing.assert_allclose(found, reference(12, *arrays), rtol=1e-4)


def test_rows_of_unknown_number():
    arrays = drawn((9, 16), (9, 16))
    start = time.monotonic()
    found = run(recurrence(8), arrays, symbolic=(9,), schedule=True)
    assert time.monotonic() - start < _LIMIT
    np.testing.assert_allclose(found, reference(8, *arrays), rtol=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_of_recurrences(axis):
    def build(*parameters):
        emit = relax.BlockBuilder.current().emit
        return relax.op.sum(emit(recurrence(8)(*parameters)), [axis])

    arrays = drawn((48, 32), (48, 32))
    start = time.monotonic()
    found = run(build, arrays, schedule=True)
    assert time.monotonic() - start < _LIMIT
    np.testing.assert_allclose(found, reference(8, *arrays).sum(axis), rtol=1e-4)


def test_products_of_what_a_recurrence_follows():
    def build(first, second):
        product = relax.BlockBuilder.current().emit(relax.op.matmul(first, second))
        return recurrence(6)(product, first)

    arrays = drawn((16, 16), (16, 16))
    start = time.monotonic()
    found = run(build, arrays, schedule=True)
    assert time.monotonic() - start < _LIMIT
    expected = reference(6, arrays[0] @ arrays[1], arrays[0])
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "build",
    [
        lambda a: relax.op.clip(a, -1, 1),
        lambda a: relax.op.nn.gelu(relax.op.add(a, a)),
        lambda a: relax.op.nn.relu(relax.op.nn.silu(a)),
        doubled(3),
    ],
)
def test_short_chains_are_one_expression(build):
    def emitted(value):
        return relax.BlockBuilder.current().normalize(build(value))

    assert len(stores(scheduled(emitted, (64, 32)))) == 1


def error_function(steps):
    """A function of a library, of whose value the next step is computed twice."""

    def build(value):
        emit = relax.BlockBuilder.current().emit
        for _ in range(steps):
            value = emit(relax.op.multiply(value, emit(relax.op.erf(value))))
        return value

    return build


def test_functions_of_a_library_are_called_once_for_an_element():
    functions = scheduled(error_function(6), (8, 64))
    calls = [
        call
        for function in functions
        for call in all_of(function.body, tvm.ir.Call)
        if "erf" in str(call.op)
    ]
    assert len(calls) == 6


def test_a_single_one_is_no_reason_to_store():
    def gelu(value):
        emit = relax.BlockBuilder.current().emit
        half = emit(relax.op.multiply(value, relax.const(0.5, "float32")))
        power = emit(relax.op.erf(value))
        return emit(relax.op.multiply(half, emit(relax.op.add(power, relax.const(1, "float32")))))

    assert len(stores(scheduled(gelu, (8, 64)))) == 1
