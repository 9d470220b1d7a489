"""Padding by amounts that only the run time knows, and gradients of padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.importers.padded import padded
from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty
from tvm_scatter.problem.sizes import as_expression

from .along import add_along, known_sizes
from .call import TorchCall


def constant_pad(call: TorchCall) -> Any:
    """``constant_pad_nd``. TVM pads by constant amounts only."""
    data, padding = call["self"], call["pad"]
    if all(isinstance(amount, int) for amount in padding):
        return None
    dtype, ends = str(data.ty.dtype), _ends(padding)
    value = tirx.const(bool(call["value"]) if dtype == "bool" else call["value"], dtype)
    around = [(0, 0)] * (data.ty.ndim - len(ends)) + ends
    befores = [as_expression(before) for before, _ in around]
    sizes = [
        as_expression(before + size + after)
        for size, (before, after) in zip(shape_of(data), around, strict=True)
    ]

    def with_value(data: te.Tensor, sizes: Any, befores: Any) -> te.Tensor:
        return padded(data, sizes, befores, value)

    return call.compute(with_value, data, sizes, befores, name="pad")


def _ends(padding: Sequence[Any]) -> list[tuple[Any, Any]]:
    """What is added in front and behind, axis by axis. PyTorch begins with the last axis."""
    return [(padding[at], padding[at + 1]) for at in reversed(range(0, len(padding), 2))]


def replication_pad_backward(call: TorchCall) -> Any:
    """``replication_pad1d_backward`` and so on: a padded element's gradient goes to the edge."""
    data, ends = call["self"], _ends(call["padding"])
    first = data.ty.ndim - len(ends)
    sizes = known_sizes(call, "the padded axes", shape_of(data)[first:])
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
