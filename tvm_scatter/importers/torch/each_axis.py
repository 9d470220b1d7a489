"""Numbers that PyTorch gives for all axes or for each."""

from __future__ import annotations

from typing import Any


def of_each_axis(number: Any, axes: int) -> list[int]:
    """One number for each axis; PyTorch also takes one for all of them, alone or in a list."""
    numbers = list(number) if isinstance(number, list | tuple) else [number]
    return numbers * axes if len(numbers) == 1 else numbers
