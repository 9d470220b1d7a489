"""Numbers of the type of an expression, and polynomials of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx


def number_like(number: float, like: Any) -> Any:
    """A number of the type of an expression."""
    return tirx.const(number, like.ty)


def ratio(coefficients: Sequence[Sequence[float]], value: Any) -> Any:
    """A rational function: the polynomials above and below."""
    above, below = (polynomial(each, value) for each in coefficients)
    return above / below


def polynomial(coefficients: Sequence[float], value: Any) -> Any:
    """A polynomial, its highest power first."""
    result = number_like(coefficients[0], value)
    for each in coefficients[1:]:
        result = result * value + number_like(each, value)
    return result
