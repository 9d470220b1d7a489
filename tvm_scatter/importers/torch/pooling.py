"""Gradients of pooling: a window's gradient is added to its greatest element, or to all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_empty, number_of

from .along import add_along, known_sizes
from .call import TorchCall
from .each_axis import of_each_axis, pooled_axes


def max_pool_backward(call: TorchCall) -> Any:
    """``max_pool2d_with_indices_backward``, ``adaptive_max_pool2d_backward``; those of 3-D, too.

    An index is a position in the flattened plane or volume.
    """
    data, gradient, indices = call["self"], call["grad_output"], call["indices"]
    pooled = pooled_axes(call)
    shape, dtype = shape_of(data), str(data.ty.dtype)
    before = shape[:-pooled]
    windows = shape_of(indices)[-pooled:]
    call.expect_dtype("grad_output", gradient, dtype)
    indices = call.expect_shape("indices", indices, (*before, *windows))
    gradient = call.expect_shape("grad_output", gradient, (*before, *windows))
    if is_empty(gradient):
        return call.emit(relax.op.zeros(shape, dtype))
    flat, count = (*before, number_of(shape[-pooled:])), number_of(windows)
    added = ops.scatter_elements(
        call.emit(relax.op.zeros(flat, dtype)),
        call.reshape(indices, (*before, count)),
        call.reshape(gradient, (*before, count)),
        len(before),
        "add",
        operator=call.origin,
    )
    return call.reshape(call.emit(added), shape)


def avg_pool_backward(call: TorchCall) -> Any:
    """``avg_pool2d_backward`` and ``avg_pool3d_backward``."""
    pooled = pooled_axes(call)
    kernel = of_each_axis(call["kernel_size"], pooled)
    stride = of_each_axis(call["stride"] or kernel, pooled)
    padding = of_each_axis(call["padding"], pooled)
    divisor = call["divisor_override"]
    counted = bool(call["count_include_pad"])

    def windows(i: int, size: int, entries: int) -> tuple[np.ndarray, np.ndarray]:
        first = np.arange(entries)[:, None] * stride[i] - padding[i]
        places = first + np.arange(kernel[i])
        inside = (places < size + padding[i]) if counted else (places >= 0) & (places < size)
        lengths = inside.sum(axis=1, keepdims=True)
        if divisor is not None:
            return places, np.full(lengths.shape, 1 / divisor if i == 0 else 1.0)
        return places, 1 / np.maximum(lengths, 1)

    return _average_backward(call, pooled, windows)


def adaptive_avg_pool_backward(call: TorchCall) -> Any:
    """``_adaptive_avg_pool2d_backward`` and ``_adaptive_avg_pool3d_backward``."""

    def windows(_: int, size: int, entries: int) -> tuple[np.ndarray, np.ndarray]:
        window = np.arange(entries)[:, None]
        first, last = window * size // entries, -(-(window + 1) * size // entries)
        places = first + np.arange((last - first).max())
        return np.where(places < last, places, size), 1 / (last - first)

    return _average_backward(call, pooled_axes(call), windows)


def _average_backward(call: TorchCall, pooled: int, windows: Any) -> Any:
    """A window's gradient, divided by its size, for all of its elements: one axis at a time."""
    data, gradient = call["self"], call["grad_output"]
    shape, dtype = shape_of(data), str(data.ty.dtype)
    if not dtype.startswith(("float", "bfloat")):
        raise call.error(f"data of type {dtype} must be of a floating-point type.")
    first = data.ty.ndim - pooled
    sizes = known_sizes(call, "the pooled axes", shape[first:])
    entries = known_sizes(call, "the windows", shape_of(gradient)[first:])
    gradient = call.expect_shape("grad_output", gradient, (*shape[:first], *entries))
    if is_empty(gradient) or is_empty(data):
        return call.emit(relax.op.zeros(shape, dtype))
    for i, (size, count) in enumerate(zip(sizes, entries, strict=True)):
        gradient = add_along(call, gradient, first + i, size, *windows(i, size, count))
    return gradient
