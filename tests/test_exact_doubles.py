"""Constants of double precision are the nearest numbers, however small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import compile_all, run_compiled
from tvm import relax

from tvm_scatter.ops.operators import scatter_elements

CONSTANTS = (1e-16, 1 / 3, 1.23456789e-10, -2.5e-13, 0.1, 1e300, 2.3e-308, 2.0, 3.5e20, np.pi)


def sums(value: float, in_scatter: bool) -> Callable[..., Any]:
    """A number added to data, by a function of its own or in the updates of a scatter."""

    def build(data: Any, index: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        added = emit(relax.op.add(data, relax.const(value, "float64")))
        if not in_scatter:
            return added
        return scatter_elements(data, index, added, axis=0, reduction="add")

    return build


@pytest.mark.parametrize("in_scatter", [False, True], ids=["apart", "in a scatter"])
def test_constants(device: str, in_scatter: bool) -> None:
    arrays = [np.zeros(4), np.array([3, 1, 2, 0])]
    calls = {f"f{at}": (sums(value, in_scatter), arrays) for at, value in enumerate(CONSTANTS)}
    results = run_compiled(compile_all(calls, device), calls, device)
    for at, value in enumerate(CONSTANTS):
        np.testing.assert_array_equal(results[f"f{at}"], np.full(4, value))
