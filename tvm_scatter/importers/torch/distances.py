"""Distances between vectors: ``cdist`` and ``pdist``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty

from .along import known_sizes
from .call import TorchCall


def cdist(call: TorchCall) -> Any:
    """``cdist``: between each row of one matrix and each of another, for batches that broadcast."""
    left, right = call["x1"], call["x2"]
    rows = (*shape_of(left)[:-1], shape_of(right)[-2])
    if is_empty(left) or is_empty(right):
        return call.emit(relax.op.zeros(rows, str(left.ty.dtype)))
    # (..., P, M) and (..., R, M) become (..., P, 1, M) and (..., 1, R, M).
    left = call.emit(relax.op.expand_dims(left, -2))
    right = call.emit(relax.op.expand_dims(right, -3))
    return _norm(call, call.emit(relax.op.subtract(left, right)), float(call["p"]))


def pdist(call: TorchCall) -> Any:
    """``pdist``: between each two rows of a matrix."""
    data = call["self"]
    (rows,) = known_sizes(call, "the rows", shape_of(data)[:1])
    ends = [relax.const(each.astype("int64"), "int64") for each in np.triu_indices(rows, 1)]
    left, right = (call.emit(relax.op.take(data, each, 0)) for each in ends)
    return _norm(call, call.emit(relax.op.subtract(left, right)), float(call["p"]))


def _norm(call: TorchCall, difference: Any, p: float) -> Any:
    """The p-norm along the last axis."""
    dtype = str(difference.ty.dtype)
    size = call.emit(relax.op.abs(difference))
    if p == 0:
        different = call.emit(relax.op.greater(size, relax.const(0, dtype)))
        return call.emit(relax.op.sum(call.cast(different, dtype), -1))
    if p == 1:
        return call.emit(relax.op.sum(size, -1))
    if p == 2:
        squares = call.emit(relax.op.multiply(difference, difference))
        return call.emit(relax.op.sqrt(call.emit(relax.op.sum(squares, -1))))
    if math.isinf(p):
        return call.emit(relax.op.max(size, -1))
    powers = call.emit(relax.op.power(size, relax.const(p, dtype)))
    total = call.emit(relax.op.sum(powers, -1))
    return call.emit(relax.op.power(total, relax.const(1 / p, dtype)))
