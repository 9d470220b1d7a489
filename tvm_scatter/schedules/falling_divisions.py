"""Divisions whose dividend falls where a loop rises, such as ``(59 - i) // 5``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def is_understood(division: Any, loops: Collection[Var]) -> bool:
    """Whether TVM's analysis of iterators is right of a division.

    It is wrong of many whose dividend falls with a loop, and of some with an offset, as in
    ``(i + 5) // 6 % 4``.

    Parameters
    ----------
    division : tvm.tirx.FloorDiv or tvm.tirx.FloorMod
        The division.
    loops : collection of tvm.ir.Var
        The variables of the loops and threads around it.
    """
    return not _directions(division.a, loops) or _rises(division, loops)


def falling_outside(index: Any, loops: Collection[Var]) -> Any:
    """The same number, divided where it rises: ``2 - i // 20`` for ``(59 - i) // 20``.

    TVM simplifies what rises.
    """

    def outside(division: Any) -> Any:
        dividend, divisor = division.a, division.b
        if not _is_positive(divisor, loops) or _directions(dividend, loops) != {-1}:
            return division
        rising = -1 - dividend
        if isinstance(division, tirx.FloorDiv):
            return -1 - tirx.floordiv(rising, divisor)
        return divisor - 1 - tirx.floormod(rising, divisor)

    return tvm_ffi.structural_map(index, (DIVISIONS, outside))


def _rises(number: Any, loops: Collection[Var]) -> bool:
    """Whether a number is a sum of iterators, each times a positive number, without an offset."""
    if isinstance(number, Var):
        return number in loops
    if isinstance(number, tirx.Add):
        return _rises(number.a, loops) and _rises(number.b, loops)
    if isinstance(number, tirx.Mul):
        pairs = ((number.a, number.b), (number.b, number.a))
        return any(_rises(one, loops) and _is_positive(other, loops) for one, other in pairs)
    if isinstance(number, DIVISIONS):
        return _rises(number.a, loops) and _is_positive(number.b, loops)
    return False


def _is_positive(number: Any, loops: Collection[Var]) -> bool:
    """Whether a number that no loop changes is positive: sizes are."""
    if isinstance(number, tirx.IntImm):
        return int(number) > 0
    if isinstance(number, (tirx.Add, tirx.Mul)):
        return _is_positive(number.a, loops) and _is_positive(number.b, loops)
    return isinstance(number, Var) and number not in loops


def _directions(number: Any, loops: Collection[Var]) -> set[int]:
    """The signs of the iterators in a sum."""
    if isinstance(number, Var):
        return {1} if number in loops else set()
    if isinstance(number, tirx.Add):
        return _directions(number.a, loops) | _directions(number.b, loops)
    if isinstance(number, tirx.Sub):
        return _directions(number.a, loops) | _turned(_directions(number.b, loops))
    if isinstance(number, tirx.Mul):
        signs = _directions(number.a, loops) | _directions(number.b, loops)
        return _turned(signs) if _is_negative(number.a) != _is_negative(number.b) else signs
    if isinstance(number, DIVISIONS):
        return {1} if _directions(number.a, loops) else set()
    return set()


def _is_negative(factor: Any) -> bool:
    if isinstance(factor, tirx.Mul):
        return _is_negative(factor.a) != _is_negative(factor.b)
    return isinstance(factor, tirx.IntImm) and int(factor) < 0


def _turned(signs: set[int]) -> set[int]:
    return {-sign for sign in signs}
