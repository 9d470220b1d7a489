"""Elementwise operators that TVM computes wrongly on GPUs or slowly on CPUs, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from harness import run_all
from tvm import relax

from tvm_scatter.problem.reductions import numpy_dtype

INFINITY = np.inf
BASES = np.array([-INFINITY, -2, -1.5, -1, -0.5, 0, 0.5, 1, 3, INFINITY, np.nan], "float32")
EXPONENTS = np.array([-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 5, INFINITY, -INFINITY], "float32")


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_powers(device, dtype):
    bases = BASES.astype(dtype)
    calls = {
        f"constant{i}": (lambda x, e=e: relax.op.power(x, relax.const(e, dtype)), [bases])
        for i, e in enumerate(EXPONENTS)
    }
    pair = [bases[:, None], EXPONENTS.astype(dtype)[None]]
    calls["tensors"] = (relax.op.power, pair)
    with np.errstate(all="ignore"):
        # A single exponent of 0.5 would be a root for NumPy, which differs at minus infinity.
        right = {
            f"constant{i}": np.power(bases, np.full_like(bases, e)) for i, e in enumerate(EXPONENTS)
        }
        right["tensors"] = pair[0] ** pair[1]
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-12}[dtype]
    for name, result in run_all(calls, device).items():
        np.testing.assert_allclose(result, right[name], rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint8"])
def test_casts_of_booleans(device, dtype):
    values = np.arange(40).reshape(10, 4) % 3

    def count(x):
        chosen = relax.op.logical_not(relax.op.equal(x, relax.const(1, "int64")))
        return relax.op.astype(chosen, dtype)

    result = run_all({"cast": (count, [values])}, device)["cast"]
    np.testing.assert_array_equal(result, (values != 1).astype(dtype))


@pytest.mark.parametrize("shape", [(10, 4), (4,), (1,)])
def test_a_comparison_with_no_number_does_not_hold(device, shape):
    """Nor does the opposite one."""
    x = np.resize(np.array([1, np.nan, 3], "float32"), (10, 4))
    y = np.resize(np.array([2, 2, 2, np.nan], "float32"), shape)
    compared = {"less": np.less, "less_equal": np.less_equal, "greater": np.greater}
    calls = {
        name: (
            lambda x, y, name=name: relax.op.logical_not(getattr(relax.op, name)(x, y)),
            [x, y],
        )
        for name in compared
    }
    for name, result in run_all(calls, device).items():
        np.testing.assert_array_equal(result, ~compared[name](x, y), err_msg=name)


@pytest.mark.parametrize("shape", [(10, 4), (10, 1), (4,), ()])
def test_choices(device, shape):
    values = np.arange(math.prod(shape)).reshape(shape) % 3
    full = np.broadcast_shapes(shape, (10, 4))
    x = np.arange(math.prod(full), dtype="float32").reshape(full)

    def choose(x, values):
        chosen = relax.op.logical_not(relax.op.equal(values, relax.const(1, "int64")))
        return relax.op.where(chosen, relax.op.multiply(x, x), relax.const(-1, "float32"))

    result = run_all({"where": (choose, [x, values])}, device)["where"]
    np.testing.assert_array_equal(result, np.where(values != 1, x * x, -1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("sides", ["data, constant", "constant, data", "both constants"])
def test_choices_of_constants(device, dtype, sides):
    """On CPUs a constant is part of the code: read from memory, it would be a branch."""
    values = np.arange(40).reshape(10, 4)
    x = (values % 2 if dtype == "bool" else values).astype(numpy_dtype(dtype))
    one, zero = (np.asarray(each, numpy_dtype(dtype)) for each in (1, 0))

    def pair(data, one, zero):
        both = {"data": data, "constant": one}
        return (zero, one) if sides == "both constants" else [both[e] for e in sides.split(", ")]

    def choose(x, values):
        large = relax.op.greater(values, relax.const(11, "int64"))
        return relax.op.where(large, *pair(x, relax.const(one, dtype), relax.const(zero, dtype)))

    result = run_all({"where": (choose, [x, values])}, device)["where"]
    right = np.where(values > 11, *pair(x, one, zero))
    np.testing.assert_array_equal(result.astype(float), right.astype(float))


def test_a_constant_of_a_choice_is_part_of_the_code():
    x = relax.Var("x", relax.TensorType([4], "bfloat16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        zero = relax.const(0, "bfloat16")
        negative = builder.emit(relax.op.less_equal(x, zero))
        builder.emit_func_output(builder.emit(relax.op.where(negative, zero, x)))
    with tvm.target.Target("llvm"):
        module = relax.transform.LegalizeOps()(builder.get())
    assert len(module["where"].params) == 3, "the condition, the data and the result"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_of_16_bit_floats(device, dtype):
    """Neither CUDA nor LLVM has all of them."""
    inverses = {"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh, "asinh": np.arcsinh}
    inverses |= {"atan": np.arctan, "tan": np.tan, "tanh": np.tanh, "square": np.square}
    functions = {"round": np.rint, "sinh": np.sinh, "cosh": np.cosh, "acosh": np.arccosh}
    x = np.linspace(-0.9, 0.9, 40).astype(numpy_dtype(dtype))
    beyond = np.linspace(1.1, 4.9, 39).astype(numpy_dtype(dtype))
    calls = {name: (getattr(relax.op, name), [x]) for name in inverses}
    calls |= {name: (getattr(relax.op, name), [beyond]) for name in functions}
    for name, result in run_all(calls, device).items():
        [values] = calls[name][1]
        right = (inverses | functions)[name](values.astype("float32")).astype(values.dtype)
        assert result.dtype == values.dtype
        tolerance = 0 if name == "round" else {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
        np.testing.assert_allclose(
            result.astype("float32"), right.astype("float32"), tolerance, 1e-4, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_of_two_16_bit_floats(device, dtype):
    functions = {"atan2": np.arctan2, "mod": np.fmod, "floor_mod": np.mod, "power": np.power}
    x = np.linspace(0.3, 40, 40).astype(numpy_dtype(dtype))
    calls = {name: (getattr(relax.op, name), [x, x[::-1] / x[9]]) for name in functions}
    for name, result in run_all(calls, device).items():
        right = functions[name](*(each.astype("float32") for each in calls[name][1]))
        assert result.dtype == x.dtype
        with np.errstate(over="ignore"):
            right = right.astype(x.dtype).astype("float32")
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
        np.testing.assert_allclose(result.astype("float32"), right, tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_not_a_number(device, dtype):
    x = np.resize([np.nan, 0, 1, INFINITY, -INFINITY], 40).astype(numpy_dtype(dtype))
    predicates = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    calls = {name: (getattr(relax.op, name), [x]) for name in predicates}
    calls["itself"] = (lambda x: relax.op.equal(x, x), [x])
    calls["unlike_itself"] = (lambda x: relax.op.not_equal(x, x), [x])
    predicates |= {"itself": lambda x: x == x, "unlike_itself": lambda x: x != x}
    for name, result in run_all(calls, device).items():
        np.testing.assert_array_equal(result, predicates[name](x.astype("float64")), name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("value", [-INFINITY, INFINITY, np.nan])
def test_constants_that_are_not_finite(device, dtype, value):
    x = np.arange(40).astype(numpy_dtype(dtype))

    def masked(x):
        small = relax.op.less(x, relax.const(20, dtype))
        return relax.op.where(small, relax.const(value, dtype), relax.op.add(x, x))

    result = run_all({"masked": (masked, [x])}, device)["masked"]
    np.testing.assert_array_equal(result.astype("float32"), [value] * 20 + [*range(40, 80, 2)])
