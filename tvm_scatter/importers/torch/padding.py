"""Gradients of padding."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty

from .along import add_along, known_sizes
from .call import TorchCall


def replication_pad_backward(call: TorchCall) -> Any:
    """``replication_pad1d_backward`` and so on: a padded element's gradient goes to the edge."""
    data, padding = call["self"], call["padding"]
    padded = len(padding) // 2
    first = data.ty.ndim - padded
    sizes = known_sizes(call, "the padded axes", shape_of(data)[first:])
    # The padding is listed from the last axis on.
    ends = [(padding[2 * i], padding[2 * i + 1]) for i in reversed(range(padded))]
    wanted = [n + before + after for n, (before, after) in zip(sizes, ends, strict=True)]
    gradient = call.expect_shape(
        "grad_output", call["grad_output"], (*shape_of(data)[:first], *wanted)
    )
    if is_empty(data) or is_empty(gradient):
        return call.emit(relax.op.zeros(shape_of(data), str(data.ty.dtype)))
    for axis, (size, (before, _)) in enumerate(zip(sizes, ends, strict=True), first):
        places = np.clip(np.arange(wanted[axis - first]) - before, 0, size - 1)
        gradient = add_along(call, gradient, axis, size, places[:, None])
    return gradient
