"""Integers wrap around in compiled code, one alone and many in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_scatter.emit.wrapping import wrapping_add, wrapping_mul, wrapping_sub
from tvm_scatter.problem.reductions import INTEGERS

pytestmark = pytest.mark.optimised

OPERATIONS = {np.add: wrapping_add, np.subtract: wrapping_sub, np.multiply: wrapping_mul}


@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.turns(2)
def test_wraps_around(operation: Any, count: int) -> None:
    signed = [dtype for dtype in INTEGERS if not dtype.startswith("u")]
    dtypes = signed if operation is np.subtract else INTEGERS
    machine = tvm.compile(
        tvm.IRModule({dtype: _function(OPERATIONS[operation], dtype, count) for dtype in dtypes}),
        "llvm",
    )
    for dtype in dtypes:
        limits = np.iinfo(dtype)
        extremes = np.array([limits.max, limits.min, limits.max // 2 + 1, 3], dtype)
        for shift in range(len(extremes)):
            left = np.resize(np.roll(extremes, shift), count)
            right = np.resize(extremes, count)
            tensors = [tvm.runtime.tensor(a) for a in (left, right, np.zeros_like(left))]
            machine[dtype](*tensors)
            np.testing.assert_array_equal(tensors[-1].numpy(), operation(left, right), dtype)


def _function(operation: Callable[..., Any], dtype: str, count: int) -> tvm.tirx.PrimFunc:
    left, right = (te.placeholder((count,), dtype) for _ in range(2))
    result = te.compute((count,), lambda i: operation(left[i], right[i], dtype))
    return te.create_prim_func([left, right, result]).with_attr("global_symbol", dtype)
