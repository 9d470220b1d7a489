"""Integers to sort: many that are equal, and any that a type has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def small(shape: Sequence[int], dtype: str = "int32", seed: int = 0) -> Array:
    """Few different numbers, so that many are equal."""
    return np.random.default_rng(seed).integers(-9, 9, tuple(shape)).astype(dtype)


def any_of(shape: Sequence[int], dtype: str = "int32", seed: int = 1) -> Array:
    """All bit patterns, and the least and the greatest one."""
    info = np.iinfo(dtype)
    found = np.random.default_rng(seed).integers(info.min, info.max, tuple(shape), dtype)
    found.flat[::5], found.flat[1::7] = info.max, info.min
    return found


def in_order(array: Array, axis: int, descending: bool) -> Array:
    """The places of the elements in order, equal ones as they come."""
    return np.argsort(~array if descending else array, axis, kind="stable")
