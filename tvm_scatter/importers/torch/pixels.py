"""Where in an image the pixels of a larger or smaller one are, and what those around them weigh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx

from .call import TorchCall


def image_of(call: TorchCall) -> Any:
    """The image that an operator resizes."""
    return call["self"] if "self" in call else call["input"]


def scale_of(call: TorchCall, axis: int, spatial: int) -> float | None:
    """The factor that was asked for along one of the image's axes, if one was."""
    return call["scales" if spatial == 1 else f"scales_{'dhw'[3 - spatial + axis]}"]


def step(size: int, entries: int, scale: float | None, corners: bool) -> float:
    """How many pixels of the input a pixel of the output goes on."""
    if corners:
        return (size - 1) / (entries - 1) if entries > 1 else 0.0
    return 1 / scale if scale else size / entries


def step_at_run_time(
    size: Any, entries: Any, scale: float | None, corners: bool, number: str
) -> Any:
    """The same as an expression of this type, of sizes that are expressions."""
    if corners:
        gaps = tirx.max((entries - 1).astype(number), tirx.const(1.0, number))
        return (size - 1).astype(number) / gaps
    if scale:
        return tirx.const(1 / scale, number)
    return size.astype(number) / entries.astype(number)


def positions(
    size: int, entries: int, scale: float | None, corners: bool, number: Any
) -> np.ndarray:
    """Where in the input each pixel of the output is."""
    distance = number(step(size, entries, scale, corners))
    places = np.arange(entries, dtype=number)
    return places * distance if corners else (places + number(0.5)) * distance - number(0.5)


def cubic(distance: Any, a: float, where: Callable[..., Any] = np.where) -> Any:
    """The weight of a pixel at this distance, with PyTorch's parameter of bicubic interpolation."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return where(distance <= 1, near, where(distance < 2, far, 0 * distance))
