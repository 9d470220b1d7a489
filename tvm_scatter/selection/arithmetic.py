"""Arithmetic that serves numbers and TIR expressions alike, so that one formula does for both."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

_NUMBERS = (int, float)


def real(value: Any) -> Any:
    """A size as a ``float`` or as a float64 expression."""
    return float(value) if isinstance(value, _NUMBERS) else tirx.Cast("float64", value)


def _expression(value: Any) -> Any:
    return tirx.FloatImm("float64", float(value)) if isinstance(value, _NUMBERS) else value


def larger(left: Any, right: Any) -> Any:
    """The larger of two."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return max(left, right)
    return tirx.max(_expression(left), _expression(right))


def smaller(left: Any, right: Any) -> Any:
    """The smaller of two."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return min(left, right)
    return tirx.min(_expression(left), _expression(right))


def is_at_most(left: Any, right: Any) -> Any:
    """Whether ``left <= right``."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return left <= right
    return _expression(left) <= _expression(right)


def choose(condition: Any, left: Any, right: Any) -> Any:
    """``left`` if the condition holds, else ``right``."""
    if isinstance(condition, bool):
        return left if condition else right
    return tirx.Select(condition, _expression(left), _expression(right))


def logarithm(value: Any) -> Any:
    """The natural logarithm of a positive value."""
    return math.log(value) if isinstance(value, _NUMBERS) else tirx.log(value)


def power(value: Any, exponent: float) -> Any:
    """A positive value to a power that is known."""
    if isinstance(value, _NUMBERS):
        return value**exponent
    return tirx.exp(tirx.log(value) * _expression(exponent))


def root(value: Any) -> Any:
    """The square root."""
    return math.sqrt(value) if isinstance(value, _NUMBERS) else tirx.sqrt(value)
