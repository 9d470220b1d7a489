"""Upsampling, and its gradients: each is added to the pixels that a pixel was made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty
from tvm_scatter.problem.sizes import as_expression

from .along import add_along, known_sizes
from .call import TorchCall
from .ordering import is_float
from .pixels import cubic, image_of, positions, scale_of, step_at_run_time
from .smoothing import window

#: PyTorch's parameter of bicubic interpolation.
_CUBIC = -0.75
#: Products of sizes and such numbers are exact in double precision.
_EXACT = 2**16
#: Of each pixel of the output, the positions in the input of several pixels, and their weights.
_Spread = tuple[np.ndarray, np.ndarray | None]
#: From the sizes of the input and the output along an axis, the scale, and the type to compute in.
_Spreading = Callable[[int, int, float | None, Any], _Spread]


def upsample_nearest(call: TorchCall) -> Any:
    """``upsample_nearest1d`` and so on, and ``_upsample_nearest_exact1d``."""
    image = image_of(call)
    wanted, scales = _asked(call, image)
    sizes = shape_of(image)[2:]
    offset = 0.5 if "exact" in call.name else 0.0
    if not all(isinstance(size, int) for size in (*sizes, *wanted)):
        return _nearest_at_run_time(call, image, wanted, scales, offset)
    if "scale_factors" in call and _repeats_pixels(sizes, wanted):
        return None
    for i, (size, entries, scale) in enumerate(zip(sizes, wanted, scales, strict=True)):
        places = _nearest(size, entries, scale, offset)
        image = call.emit(relax.op.take(image, relax.const(places[:, 0], "int64"), 2 + i))
    return image


def upsample_bilinear(call: TorchCall) -> Any:
    """``upsample_bilinear2d``.

    TVM ignores the fractions of factors, takes neither integers nor sizes that only the run time
    knows, and divides by the gaps between corners, also by none.
    """
    image = image_of(call)
    wanted, scales = _asked(call, image)
    sizes, dtype = shape_of(image)[2:], str(image.ty.dtype)
    corners = call["align_corners"]
    exact = corners or all(x is None or float(x).is_integer() for x in scales)
    known = all(isinstance(size, int) for size in (*sizes, *wanted))
    if known and exact and is_float(dtype) and not (corners and 1 in wanted):
        return None
    wide = dtype if is_float(dtype) else "float32"
    image = call.cast(image, wide)
    if known:
        number: Any = np.float64 if dtype == "float64" else np.float32
        for i, (size, entries, scale) in enumerate(zip(sizes, wanted, scales, strict=True)):
            pixels = _between(size, entries, scale, corners, number)
            image = _mixed(call, image, 2 + i, pixels)
    else:
        image = _between_at_run_time(call, image, wanted, scales)
    return image if wide == dtype else call.cast(call.emit(relax.op.round(image)), dtype)


def _asked(call: TorchCall, image: Any) -> tuple[list[Any], list[float | None]]:
    """The sizes of the output, and the factors that were asked for, if any were."""
    spatial, wanted = image.ty.ndim - 2, call["output_size"]
    if "scale_factors" not in call:
        return list(wanted), [scale_of(call, i, spatial) for i in range(spatial)]
    scales = list(call["scale_factors"] or [None] * spatial)
    if wanted is None:
        sizes = shape_of(image)[2:]
        wanted = [_enlarged(size, scale) for size, scale in zip(sizes, scales, strict=True)]
    return list(wanted), scales


def _enlarged(size: Any, scale: float) -> Any:
    """The whole part of a size times a factor, which PyTorch multiplies in double precision."""
    if isinstance(size, int):
        return int(size * scale)
    times, parts = scale.as_integer_ratio()
    if max(times, parts) <= _EXACT:
        return tirx.floordiv(size * times, parts)
    return (size.astype("float64") * tirx.const(scale, "float64")).astype("int64")


def _repeats_pixels(sizes: Any, wanted: list[Any]) -> bool:
    """Whether each pixel is repeated as often as any other, which TVM does as PyTorch."""
    return all(size and entries % size == 0 for size, entries in zip(sizes, wanted, strict=True))


def _nearest_at_run_time(
    call: TorchCall, image: Any, wanted: list[Any], scales: list[float | None], offset: float
) -> Any:
    """The nearest pixels of an image, or those of an output, whose size the run time knows."""

    def nearest(image: te.Tensor, wanted: Any) -> te.Tensor:
        def place(axis: int, at: Any) -> Any:
            size = image.shape[2 + axis]
            step = step_at_run_time(size, wanted[axis], scales[axis], False, "float32")
            first = tirx.floor((at.astype("float32") + tirx.const(offset, "float32")) * step)
            return tirx.min(first.astype("int64"), size - 1)

        def pixel(*at: Any) -> Any:
            return image(*at[:2], *(place(axis, each) for axis, each in enumerate(at[2:])))

        return te.compute([*image.shape[:2], *wanted], pixel, name="nearest")

    return call.compute(nearest, image, list(map(as_expression, wanted)), name="nearest")


def _between_at_run_time(
    call: TorchCall, image: Any, wanted: list[Any], scales: list[float | None]
) -> Any:
    """The four pixels around each position, mixed, where the run time knows the sizes.

    PyTorch computes positions, and mixes halves, in single precision.
    """
    dtype = str(image.ty.dtype)
    number, corners = "float64" if dtype == "float64" else "float32", call["align_corners"]

    def mixed(image: te.Tensor, wanted: Any) -> te.Tensor:
        def pixels(axis: int, at: Any) -> list[tuple[Any, Any]]:
            """The places of two pixels, and their weights."""
            size = image.shape[2 + axis]
            step = step_at_run_time(size, wanted[axis], scales[axis], corners, number)
            half, last = tirx.const(0.0 if corners else 0.5, number), size - 1
            position = (at.astype(number) + half) * step - half
            position = tirx.max(position, tirx.const(0, number))
            left = tirx.min(position.astype("int64"), last)
            one = tirx.const(1, number)
            weight = tirx.min(position - left.astype(number), one)
            return [(left, one - weight), (tirx.min(left + 1, last), weight)]

        def pixel(n: Any, c: Any, y: Any, x: Any) -> Any:
            lines = [
                sum(image(n, c, row, column).astype(number) * part for column, part in pixels(1, x))
                * share
                for row, share in pixels(0, y)
            ]
            return sum(lines).astype(dtype)

        return te.compute([*image.shape[:2], *wanted], pixel, name="bilinear")

    return call.compute(mixed, image, list(map(as_expression, wanted)), name="bilinear")


def _mixed(call: TorchCall, image: Any, axis: int, pixels: tuple[np.ndarray, np.ndarray]) -> Any:
    """The sum of two pixels along an axis, given by their places and weights."""
    after, dtype = (1,) * (image.ty.ndim - axis - 1), str(image.ty.dtype)
    parts = []
    for place, weight in zip(pixels[0].T, pixels[1].T, strict=True):
        taken = call.emit(relax.op.take(image, relax.const(place, "int64"), axis))
        factor = relax.const(weight.reshape(-1, *after).astype("float64"), "float64")
        parts.append(call.emit(relax.op.multiply(taken, call.cast(factor, dtype))))
    return call.emit(relax.op.add(*parts))


def upsample_nearest_backward(call: TorchCall) -> Any:
    """``upsample_nearest1d_backward`` and so on, and ``_upsample_nearest_exact1d_backward``."""
    offset = 0.5 if "exact" in call.name else 0.0
    return _upsample_backward(call, lambda n, m, scale, _: (_nearest(n, m, scale, offset), None))


def upsample_linear_backward(call: TorchCall) -> Any:
    """``upsample_linear1d_backward``, ``upsample_bilinear2d_backward`` and the trilinear one."""

    def spread(size: int, entries: int, scale: float | None, number: Any) -> _Spread:
        return _between(size, entries, scale, call["align_corners"], number)

    return _upsample_backward(call, spread)


def upsample_cubic_backward(call: TorchCall) -> Any:
    """``upsample_bicubic2d_backward``."""

    def spread(size: int, entries: int, scale: float | None, number: Any) -> _Spread:
        return _around(size, entries, scale, call["align_corners"], number)

    return _upsample_backward(call, spread)


def upsample_smooth_backward(call: TorchCall) -> Any:
    """``_upsample_bilinear2d_aa_backward`` and ``_upsample_bicubic2d_aa_backward``."""
    return _upsample_backward(call, lambda n, m, scale, _: window(call, n, m, scale))


def _upsample_backward(call: TorchCall, spread: _Spreading) -> Any:
    """The gradient of each pixel goes to those that it was made of, one axis at a time."""
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
        found = spread(size, entries, scale_of(call, i, spatial), number)
        gradient = add_along(call, gradient, 2 + i, size, *found)
    return gradient


def _nearest(size: int, entries: int, scale: float | None, offset: float) -> np.ndarray:
    step = np.float32(1 / scale if scale else size / entries)
    places = np.floor((np.arange(entries, dtype="float32") + np.float32(offset)) * step)
    return np.minimum(places.astype("int64"), size - 1)[:, None]


def _between(
    size: int, entries: int, scale: float | None, corners: bool, number: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The two pixels beside each position, and their weights."""
    centers = np.maximum(positions(size, entries, scale, corners, number), number(0))
    left = np.minimum(centers.astype("int64"), size - 1)
    right = np.minimum(left + 1, size - 1)
    weight = np.minimum(centers - left.astype(number), number(1))
    return np.stack([left, right], 1), np.stack([1 - weight, weight], 1)


def _around(size: int, entries: int, scale: float | None, corners: bool, number: Any) -> _Spread:
    """The four pixels around each position, and their weights. Those outside are the border."""
    centers = positions(size, entries, scale, corners, number)
    first = np.floor(centers)
    places = first.astype("int64")[:, None] + np.arange(-1, 3)
    weights = cubic(np.abs(centers[:, None] - places.astype(number)), _CUBIC)
    return np.clip(places, 0, size - 1), weights
