"""How many axes a pooling has, and numbers that PyTorch gives for all axes or for each."""

from __future__ import annotations

from typing import Any

from .call import TorchCall


def of_each_axis(number: Any, axes: int) -> list[int]:
    """One number for each axis; PyTorch also takes one for all of them, alone or in a list."""
    numbers = list(number) if isinstance(number, list | tuple) else [number]
    return numbers * axes if len(numbers) == 1 else numbers


def pooled_axes(call: TorchCall) -> int:
    """How many axes a pooling has: the digit in its name, such as ``max_pool2d_with_indices``."""
    return int(call.name.partition("pool")[2][0])
