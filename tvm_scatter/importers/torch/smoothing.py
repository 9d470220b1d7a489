"""Images that are resized with ``antialias``: the more one shrinks, the more pixels are mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.problem.sizes import as_expression

from .call import TorchCall
from .ordering import is_float
from .pixels import cubic, image_of, scale_of, step, step_at_run_time

#: PyTorch's parameter of bicubic interpolation, if it is smoothed.
_CUBIC = -0.5
_NUMBER = "float64"


def upsample_smooth(call: TorchCall) -> Any:
    """``_upsample_bilinear2d_aa`` and ``_upsample_bicubic2d_aa``. TVM leaves the smoothing out.

    Each axis is a product with a matrix of weights.
    """
    image = image_of(call)
    sizes, dtype = shape_of(image)[2:], str(image.ty.dtype)
    if not is_float(dtype):
        raise call.error(f"smoothed images of type {dtype} are not supported; make them float32.")
    for i, (size, entries) in enumerate(zip(sizes, call["output_size"], strict=True)):
        matrix = _weights(call, size, entries, scale_of(call, i, len(sizes)), transposed=i == 1)
        factor = call.cast(matrix, dtype)
        image = call.emit(relax.op.matmul(*((factor, image) if i == 0 else (image, factor))))
    return image


def window(
    call: TorchCall, size: int, entries: int, scale: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The places of the pixels that each smoothed one is made of, and their weights."""
    corners = call["align_corners"]
    distance = step(size, entries, scale, corners)
    stretch = max(distance, 1.0)
    reach = _radius(call) * stretch
    centers = distance * (np.arange(entries) + 0.5)
    first = np.maximum((centers - reach + 0.5).astype("int64"), 0)
    last = np.minimum((centers + reach + 0.5).astype("int64"), size)
    places = first[:, None] + np.arange((last - first).max())
    distances = np.abs((places - centers[:, None] + 0.5) / stretch)
    weights = cubic(distances, _CUBIC) if _is_cubic(call) else np.maximum(1 - distances, 0)
    weights = np.where(places < last[:, None], weights, 0)
    return np.minimum(places, size - 1), weights / weights.sum(1, keepdims=True)


def _weights(call: TorchCall, size: Any, entries: Any, scale: Any, transposed: bool) -> Any:
    """A row of weights for each pixel of the output, or a column."""
    if not (isinstance(size, int) and isinstance(entries, int)):
        rows = _weights_at_run_time(call, size, entries, scale)
        return call.emit(relax.op.permute_dims(rows)) if transposed else rows
    places, weights = window(call, size, entries, scale)
    matrix = np.zeros((entries, size))
    np.add.at(matrix, (np.arange(entries)[:, None], places), weights)
    return relax.const(matrix.T if transposed else matrix, _NUMBER)


def _weights_at_run_time(call: TorchCall, size: Any, entries: Any, scale: Any) -> Any:
    """The same rows where the run time knows the sizes."""
    corners, radius, is_cubic = call["align_corners"], _radius(call), _is_cubic(call)

    def weights(size: Any, entries: Any) -> te.Tensor:
        distance = step_at_run_time(size, entries, scale, corners, _NUMBER)
        stretch = tirx.max(distance, tirx.const(1, _NUMBER))
        reach, half = tirx.const(radius, _NUMBER) * stretch, tirx.const(0.5, _NUMBER)

        def weight(row: Any, place: Any) -> Any:
            center = distance * (row.astype(_NUMBER) + half)
            first = (center - reach + half).astype("int64")
            last = (center + reach + half).astype("int64")
            away = tirx.abs((place.astype(_NUMBER) - center + half) / stretch)
            zero = tirx.const(0, _NUMBER)
            value = cubic(away, _CUBIC, tirx.Select) if is_cubic else tirx.max(1 - away, zero)
            return tirx.Select(tirx.all(place >= first, place < last), value, zero)

        return te.compute((entries, size), weight, name="weights_of_pixels")

    matrix = call.compute(
        weights, as_expression(size), as_expression(entries), name="weights_of_pixels"
    )
    total = call.emit(relax.op.sum(matrix, 1, keepdims=True))
    return call.emit(relax.op.divide(matrix, total))


def _is_cubic(call: TorchCall) -> bool:
    return "bicubic" in call.name


def _radius(call: TorchCall) -> float:
    """How far a pixel is mixed with others in an image that does not shrink."""
    return 2.0 if _is_cubic(call) else 1.0
