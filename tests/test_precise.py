"""Functions of which TVM's own code loses digits, against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import run_all
from tvm import relax

from tvm_scatter.problem.reductions import numpy_dtype

#: Relative differences, in units of the last place of a type.
PLACES = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def numbers(dtype: str) -> Any:
    """Small and large ones of both signs, those around the limits of what computes them, zeros."""
    sizes = np.concatenate([np.logspace(-6, 1.5, 200), [0.6249, 0.625, 0.6251, 0.785, 0.786]])
    if dtype in ("float32", "float64"):
        sizes = np.concatenate([sizes, np.logspace(-30, -7, 20), [88.0, 90.0, 1e4]])
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan]
    return np.concatenate([sizes, -sizes, ends]).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", PLACES)
def test_hyperbolic_tangents(dtype: str, device: str) -> None:
    x = numbers(dtype)
    calls: dict[str, Any] = {"tanh": (relax.op.tanh, [x])}
    found = run_all(calls, device)["tanh"].astype("float64")
    wanted = np.tanh(x.astype("float64"))
    np.testing.assert_allclose(found, wanted, rtol=8 * PLACES[dtype])
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_angles_and_gelu(dtype: str, device: str) -> None:
    x = numbers(dtype)
    functions: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "sin": (relax.op.sin, np.sin),
        "cos": (relax.op.cos, np.cos),
        "gelu": (relax.op.nn.gelu_tanh, gelu),
    }
    calls: dict[str, Any] = {name: (each, [x]) for name, (each, _) in functions.items()}
    for name, found in run_all(calls, device).items():
        wanted = functions[name][1](x.astype("float64"))
        kept = np.isfinite(wanted) if name == "gelu" else slice(None)
        left, right, places = found.astype("float64"), wanted, 8 * PLACES[dtype]
        np.testing.assert_allclose(left[kept], right[kept], rtol=places, atol=1e-6, err_msg=name)
        if name == "sin":
            kept = np.abs(x) < 0.78
            np.testing.assert_allclose(left[kept], right[kept], rtol=places, err_msg=name)
            assert (np.signbit(left) == np.signbit(right))[x == 0].all()
