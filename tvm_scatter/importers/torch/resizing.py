"""Upsampling, and its gradients: each is added to the pixels that a pixel was made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty

from .along import add_along, known_sizes
from .call import TorchCall

_Spread = tuple[np.ndarray, np.ndarray | None]


def upsample_nearest(call: TorchCall) -> Any:
    """``upsample_nearest1d`` and so on, and ``_upsample_nearest_exact1d``, of known sizes."""
    image = call["self"] if "self" in call else call["input"]
    spatial = len(call["output_size"])
    wanted = known_sizes(call, "the output", call["output_size"])
    sizes = known_sizes(call, "the input", tuple(shape_of(image))[2:])
    offset = 0.5 if "exact" in call.name else 0.0
    for i, (size, entries) in enumerate(zip(sizes, wanted, strict=True)):
        places = _nearest(size, entries, _scale(call, i, spatial), offset)
        image = call.emit(relax.op.take(image, relax.const(places[:, 0], "int64"), 2 + i))
    return image


def upsample_nearest_backward(call: TorchCall) -> Any:
    """``upsample_nearest1d_backward`` and so on, and ``_upsample_nearest_exact1d_backward``."""
    return _upsample_backward(call, 0.5 if "exact" in call.name else 0.0)


def upsample_linear_backward(call: TorchCall) -> Any:
    """``upsample_linear1d_backward``, ``upsample_bilinear2d_backward`` and the trilinear one."""
    return _upsample_backward(call, None)


def _upsample_backward(call: TorchCall, offset: float | None) -> Any:
    """The gradient of each pixel goes to the nearest one, or to two if there is no offset."""
    gradient = call["grad_output"]
    spatial = len(call["output_size"])
    wanted = known_sizes(call, "the output", call["output_size"])
    shape = call["input_size"]
    sizes = known_sizes(call, "the input", tuple(shape)[2:])
    gradient = call.expect_shape("grad_output", gradient, (*shape[:2], *wanted))
    dtype = str(gradient.ty.dtype)
    if is_empty(gradient):
        return call.emit(relax.op.zeros(list(shape), dtype))
    # PyTorch computes positions of halves in single precision.
    number: Any = np.float64 if dtype == "float64" else np.float32
    for i, (size, entries) in enumerate(zip(sizes, wanted, strict=True)):
        scale = _scale(call, i, spatial)
        if offset is None:
            spread = _between(size, entries, scale, call["align_corners"], number)
        else:
            spread = _nearest(size, entries, scale, offset), None
        gradient = add_along(call, gradient, 2 + i, size, *spread)
    return gradient


def _scale(call: TorchCall, axis: int, spatial: int) -> float | None:
    return call["scales" if spatial == 1 else f"scales_{'dhw'[3 - spatial + axis]}"]


def _nearest(size: int, entries: int, scale: float | None, offset: float) -> np.ndarray:
    step = np.float32(1 / scale if scale else size / entries)
    places = np.floor((np.arange(entries, dtype="float32") + np.float32(offset)) * step)
    return np.minimum(places.astype("int64"), size - 1)[:, None]


def _between(size: int, entries: int, scale: float | None, corners: bool, number: Any) -> _Spread:
    """The two pixels beside each position, and their weights."""
    positions = np.arange(entries, dtype=number)
    if corners:
        positions *= number((size - 1) / (entries - 1)) if entries > 1 else number(0)
    else:
        step = number(1 / scale if scale else size / entries)
        positions = np.maximum((positions + number(0.5)) * step - number(0.5), number(0))
    left = np.minimum(positions.astype("int64"), size - 1)
    right = np.minimum(left + 1, size - 1)
    weight = np.minimum(positions - left.astype(number), number(1))
    return np.stack([left, right], 1), np.stack([1 - weight, weight], 1)
