"""Booleans of memory in the vectors of default schedules on CPUs: NumPy's answers."""

from __future__ import annotations

import numpy as np
import pytest
from harness import run_all
from tvm import relax

EXPRESSIONS = {
    "or": (relax.op.logical_or, np.logical_or),
    "and": (relax.op.logical_and, np.logical_and),
    "xor": (relax.op.logical_xor, np.logical_xor),
}
DRAWN = np.random.default_rng(0)


def exponentials(values):
    powers = np.exp(values - values.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def masked(operator):
    """A mask and a comparison of what vectors are computed of."""

    def build(values, mask):
        emit = relax.BlockBuilder.current().emit
        weights = emit(relax.op.nn.softmax(values))
        return operator(emit(relax.op.greater(weights, relax.const(0.1, "float32"))), mask)

    return build


def any_of(operator):
    """Whether any element of a row is that."""

    def build(values, mask):
        emit = relax.BlockBuilder.current().emit
        is_large = emit(relax.op.greater(values, relax.const(0.9, "float32")))
        found = emit(relax.op.astype(emit(operator(is_large, mask)), "uint8"))
        return relax.op.max(found, -1)

    return build


@pytest.mark.parametrize("width", [1, 2, 3, 4, 16, 33, 256])
def test_comparisons_beside_masks(width):
    values = DRAWN.standard_normal((8, width)).astype("float32")
    mask = DRAWN.random((8, width)) > 0.5
    arrays, calls, expected = [values, mask], {}, {}
    for name, (operator, reference) in EXPRESSIONS.items():
        calls[f"masked_{name}"] = (masked(operator), arrays)
        expected[f"masked_{name}"] = reference(exponentials(values) > 0.1, mask)
        calls[f"any_{name}"] = (any_of(operator), arrays)
        expected[f"any_{name}"] = reference(values > 0.9, mask).any(-1)
    found = run_all(calls, schedule=True)
    for name, result in found.items():
        np.testing.assert_array_equal(result, expected[name], err_msg=name)
