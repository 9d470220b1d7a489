"""Arithmetic for numbers, arrays of these and TIR expressions, so that one formula does for all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import tirx

_NUMBERS = (int, float)
_KNOWN = (*_NUMBERS, np.ndarray)


def is_known(value: Any) -> bool:
    """Whether it is a number, or an array of numbers, and no expression."""
    return isinstance(value, _KNOWN)


def real(value: Any) -> Any:
    """A size as a ``float``, as float64 numbers or as a float64 expression."""
    if isinstance(value, _NUMBERS):
        return float(value)
    return value.astype(np.float64) if is_known(value) else tirx.Cast("float64", value)


def _expression(value: Any) -> Any:
    return tirx.FloatImm("float64", float(value)) if isinstance(value, _NUMBERS) else value


def larger(left: Any, right: Any) -> Any:
    """The larger of two."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return max(left, right)
    if is_known(left) and is_known(right):
        return np.maximum(left, right)
    return tirx.max(_expression(left), _expression(right))


def smaller(left: Any, right: Any) -> Any:
    """The smaller of two."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return min(left, right)
    if is_known(left) and is_known(right):
        return np.minimum(left, right)
    return tirx.min(_expression(left), _expression(right))


def is_at_most(left: Any, right: Any) -> Any:
    """Whether ``left <= right``."""
    if is_known(left) and is_known(right):
        return left <= right
    return _expression(left) <= _expression(right)


def both(left: Any, right: Any) -> Any:
    """Whether two conditions hold."""
    if isinstance(left, bool) and isinstance(right, bool):
        return left and right
    if is_known(left) and is_known(right):
        return np.logical_and(left, right)
    return tirx.And(left, right)


def choose(condition: Any, left: Any, right: Any) -> Any:
    """``left`` if the condition holds, else ``right``."""
    if isinstance(condition, bool):
        return left if condition else right
    if is_known(condition):
        return np.where(condition, left, right)
    return tirx.Select(condition, _expression(left), _expression(right))


def logarithm(value: Any) -> Any:
    """The natural logarithm of a positive value."""
    if isinstance(value, _NUMBERS):
        return math.log(value)
    return np.log(value) if is_known(value) else tirx.log(value)


def power(value: Any, exponent: float) -> Any:
    """A positive value to a power that is known."""
    if is_known(value):
        return value**exponent
    return tirx.exp(tirx.log(value) * _expression(exponent))


def root(value: Any) -> Any:
    """The square root."""
    if isinstance(value, _NUMBERS):
        return math.sqrt(value)
    return np.sqrt(value) if is_known(value) else tirx.sqrt(value)
