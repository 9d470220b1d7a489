"""Of which pixels a pixel of ONNX's ``Resize`` is made, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
#: Two places on an axis, of which 0 is the first and 1 the last.
Part = tuple[float, float]


class Sampling(NamedTuple):
    """How pixels are resampled: the attributes of a node."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool

    @staticmethod
    def of(attributes: dict[str, Any]) -> Sampling:
        """The attributes, or their defaults in ONNX."""

        def said(name: str, default: str) -> str:
            return str(attributes.get(name, default.encode()).decode())

        return Sampling(
            said("mode", "nearest"),
            said("coordinate_transformation_mode", "half_pixel"),
            said("nearest_mode", "round_prefer_floor"),
            float(attributes.get("cubic_coeff_a", -0.75)),
            bool(attributes.get("antialias", 0)),
            bool(attributes.get("exclude_outside", 0)),
        )


def taps(
    sampling: Sampling, size: int, new: int, scale: float, part: Part
) -> tuple[Array, Array | None]:
    """Positions in the input for each pixel of the output, and weights.

    Parameters
    ----------
    part : tuple of float
        Where the part of the axis begins and ends that ``tf_crop_and_resize`` resizes.

    Returns
    -------
    places : array
        int64 of shape (new, taps).
    weights : array or None
        Of the same shape; None if there is one tap.
    """
    where = _coordinates(sampling, size, new, scale, part)
    if sampling.mode == "nearest":
        return np.clip(_ROUND[sampling.nearest](where), 0, size - 1).astype("int64")[:, None], None
    squeezed = min(scale, 1.0) if sampling.antialias else 1.0
    reach = 1 if sampling.mode == "linear" else 2
    first = int(np.floor(-reach / squeezed)) + 1
    offsets = np.arange(first, 2 - first)
    lowest = np.floor(where)
    distances = np.abs((lowest - where)[:, None] + offsets) * squeezed
    weights = (
        np.clip(1 - distances, 0, 1)
        if sampling.mode == "linear"
        else _cubic(distances, sampling.cubic)
    )
    places = lowest.astype("int64")[:, None] + offsets
    if sampling.exclude_outside:
        weights = np.where((places >= 0) & (places < size), weights, 0)
    if sampling.exclude_outside or sampling.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, size - 1), weights


def outside(sampling: Sampling, size: int, new: int, part: Part) -> Array:
    """Which pixels of the output lie in no pixel of the input."""
    if sampling.coordinates != "tf_crop_and_resize":
        return np.zeros(new, "bool")
    where = _coordinates(sampling, size, new, 1.0, part)
    return (where < 0) | (where > size - 1)


def _coordinates(sampling: Sampling, size: int, new: int, scale: float, part: Part) -> Array:
    """Where each pixel of the output lies in the input. As onnxruntime, in 32 bits."""
    if sampling.coordinates == "tf_crop_and_resize":
        begin, end = (np.float32(each) for each in part)
        length = np.float32(size - 1)
        if new == 1:
            return np.full(1, np.float32(0.5) * (begin + end) * length)
        step = (end - begin) * length / np.float32(new - 1)
        return begin * length + np.arange(new, dtype="float32") * step
    pixel, factor = np.arange(new, dtype="float32"), np.float32(scale)
    half = (pixel + np.float32(0.5)) / factor - np.float32(0.5)
    if sampling.coordinates == "asymmetric":
        return pixel / factor
    if sampling.coordinates == "align_corners":
        return pixel * np.float32((size - 1) / (new - 1) if new > 1 else 0)
    if sampling.coordinates == "pytorch_half_pixel" and new == 1:
        return np.zeros_like(pixel)
    if sampling.coordinates == "half_pixel_symmetric":
        return half + np.float32(size / 2 * (1 - new / (size * scale)))
    return half


_ROUND: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda where: np.ceil(where - 0.5),
    "round_prefer_ceil": lambda where: np.floor(where + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(distances: Array, a: float) -> Array:
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0))
