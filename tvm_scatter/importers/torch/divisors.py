"""Divisors that may be zero at run time, in numbers that are computed in any case."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def without_zero_divisors(number: Any) -> Any:
    """The number, in which divisors that are zero count as one.

    ``roll`` divides by the size of a dimension, also of a tensor without elements. It does not use
    the result, but the division would end the process.
    """
    for kind in _DIVISIONS:
        number = tvm_ffi.structural_map(number, (kind, _guarded))
    return number


def _guarded(division: Any) -> Any:
    divisor = division.b
    if isinstance(divisor, tirx.IntImm | tirx.FloatImm) or "int" not in str(divisor.ty):
        return division
    one = tirx.IntImm(str(divisor.ty), 1)
    return type(division)(division.a, tirx.Select(divisor == 0, one, divisor))
