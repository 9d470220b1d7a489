"""The length and the elements of a range of integers, computed without an overflow.

Two numbers of int64 may be farther apart than int64 goes. TVM tells LLVM that no sum overflows,
signed or unsigned, and LLVM relies on that.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

#: More elements than any memory holds, which is refused where the result is made.
_ENDLESS = 1 << 62


def count_and_step(start: te.Tensor, limit: te.Tensor, step: te.Tensor) -> te.Tensor:
    """The number of elements, and the step: int64 of shape (2,). In steps of 0 there are none."""

    def number(at: Any) -> Any:
        return tirx.Select(at == 0, _count(start(), limit(), step()), step())

    return te.compute((2,), number, name="range_length")


def elements(start: te.Tensor, step: te.Tensor, count: Any) -> te.Tensor:
    """The elements: int64 of shape (count,)."""

    def element(at: Any) -> Any:
        # Half of the way is never farther than int64 goes.
        half = tirx.floordiv(at, 2) * step()
        return (start() + half) + half + tirx.floormod(at, 2) * step()

    return te.compute((count,), element, name="range")


def _count(start: Any, limit: Any, step: Any) -> Any:
    zero, one = (tirx.const(number, "int64") for number in (0, 1))
    # A CPU ends the process where it divides by zero.
    moves = tirx.Select(step == zero, one, step)
    rises = moves > zero
    low, high = tirx.Select(rises, start, limit), tirx.Select(rises, limit, start)
    length = tirx.Select(rises, _unsigned(moves), _unsigned(~moves) + 1)
    steps = tirx.truncdiv(_distance(low, high) - 1, length) + 1
    most = tirx.min(steps, tirx.const(_ENDLESS, "uint64"))
    return tirx.Select(tirx.any(low >= high, step == zero), zero, tirx.Cast("int64", most))


def _distance(low: Any, high: Any) -> Any:
    """How far apart two numbers are."""
    zero = tirx.const(0, "int64")
    # The bits of a negative number, inverted, are its distance from -1.
    around_zero = _unsigned(high) + _unsigned(~low) + 1
    apart = tirx.all(low < zero, high >= zero)
    return tirx.Select(apart, around_zero, _unsigned(high - low))


def _unsigned(number: Any) -> Any:
    return tirx.Cast("uint64", number)
