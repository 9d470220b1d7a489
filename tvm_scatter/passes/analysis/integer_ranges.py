"""Ranges of integers whose bounds are numbers or expressions of symbolic sizes.

A sum of bounds is exact, never wrapped. Whether the integers of a tensor's type can hold a range is
asked apart (:meth:`Ranges.fit`): only then do its elements lie in that range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import tirx
from tvm.sym import Analyzer

#: Sizes are less: no machine addresses more bytes. Only a tensor without elements, which nothing
#: reads or writes, can have a larger one.
_MOST_ELEMENTS = 1 << 47
#: Symbolic bounds must certainly be less than this, so that computing with them cannot overflow.
_LARGEST = 1 << 61


class Unproven(Exception):
    """Nothing is known."""


class Range(NamedTuple):
    """Both bounds belong to the range. Of a tensor without elements any range holds."""

    low: Any
    high: Any

    def __str__(self) -> str:
        return re.sub(r"T\.int64\((-?\d+)\)", r"\1", f"[{self.low}, {self.high}]")


def number(value: Any) -> Any:
    """A size or a bound, an ``int`` where it is known.

    Raises
    ------
    Unproven
        If it is no integer, or an expression of another type than those of sizes.
    """
    if isinstance(value, bool | int | np.integer):
        return int(value)
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    scalar = isinstance(value, tvm.ir.Expr) and tvm.ir.is_prim_expr(value)
    if scalar and str(value.ty) == "int64":
        return value
    raise Unproven


def limits(dtype: str) -> Range:
    """All integers of a type.

    Raises
    ------
    Unproven
        If it is no type of integers or booleans.
    """
    if dtype == "bool":
        return Range(0, 1)
    if not re.fullmatch(r"u?int(8|16|32|64)", dtype):
        raise Unproven
    found = np.iinfo(dtype)
    return Range(int(found.min), int(found.max))


class Ranges:
    """Computes with ranges, and proves what holds for every value of the symbolic sizes.

    Parameters
    ----------
    sizes : iterable of tvm.tirx.Var
        Variables that are sizes of tensors, and so not negative.
    """

    def __init__(self, sizes: Iterable[Any] = ()) -> None:
        self._analyzer = Analyzer()
        for size in sizes:
            self._analyzer.bind(size, tvm.ir.Range(0, _MOST_ELEMENTS))

    # What holds

    def at_most(self, left: Any, right: Any) -> bool:
        """Whether a bound is certainly not greater than another."""
        if isinstance(left, int) and isinstance(right, int):
            return left <= right
        if not (self._is_small(left) and self._is_small(right)):
            return False
        return bool(self._analyzer.can_prove(left <= right))

    def inside(self, inner: Range, outer: Range) -> bool:
        """Whether a range is certainly a part of another."""
        return self.at_most(outer.low, inner.low) and self.at_most(inner.high, outer.high)

    def fit(self, found: Range, dtype: str) -> bool:
        """Whether integers of a type certainly hold all of a range."""
        known = limits(dtype)
        for bound in found:
            if isinstance(bound, int):
                if not known.low <= bound <= known.high:
                    return False
            elif not self._is_small(bound):
                return False
        wide = known.low <= -_LARGEST and known.high >= _LARGEST
        return all(
            isinstance(bound, int) or wide or self.inside(Range(bound, bound), known)
            for bound in found
        )

    def _is_small(self, bound: Any) -> bool:
        if isinstance(bound, int):
            return abs(bound) < _LARGEST
        found = self._analyzer.const_int_bound(bound)
        return bool(found.min_value > -_LARGEST and found.max_value < _LARGEST)

    # Arithmetic

    def add(self, left: Range, right: Range) -> Range:
        """Sums."""
        return Range(self._plus(left.low, right.low), self._plus(left.high, right.high))

    def negate(self, found: Range) -> Range:
        """The same integers with the other sign."""
        return Range(self._times(found.high, -1), self._times(found.low, -1))

    def subtract(self, left: Range, right: Range) -> Range:
        """Differences."""
        return self.add(left, self.negate(right))

    def multiply(self, left: Range, right: Range) -> Range:
        """Products."""
        bounds = (*left, *right)
        if all(isinstance(bound, int) for bound in bounds):
            products = [a * b for a in left for b in right]
            return Range(min(products), max(products))
        for one, factor in ((left, right), (right, left)):
            if (times := _only(factor)) is not None:
                products = [self._times(bound, times) for bound in one]
                return Range(*(products if times >= 0 else reversed(products)))
        if self.at_most(0, left.low) and self.at_most(0, right.low):
            return Range(self._times(left.low, right.low), self._times(left.high, right.high))
        raise Unproven

    def floor_divide(self, left: Range, right: Range) -> Range:
        """Quotients by positive numbers, rounded down."""
        if not self.at_most(1, right.low):
            raise Unproven
        if (divisor := _only(right)) is not None:
            return Range(*(self._over(bound, divisor) for bound in left))
        if not self.at_most(0, left.low):
            raise Unproven
        return Range(0, left.high)

    def floor_mod(self, left: Range, right: Range) -> Range:
        """Remainders of a division by positive numbers, rounded down."""
        if not self.at_most(1, right.low):
            raise Unproven
        if self.at_most(0, left.low) and self.at_most(left.high, self._plus(right.low, -1)):
            return left
        return Range(0, self._plus(right.high, -1))

    def minimum(self, left: Range, right: Range) -> Range:
        """The lesser ones."""
        return Range(self._least(left.low, right.low), self._least(left.high, right.high))

    def maximum(self, left: Range, right: Range) -> Range:
        """The greater ones."""
        return Range(self._greatest(left.low, right.low), self._greatest(left.high, right.high))

    def union(self, left: Range, right: Range) -> Range:
        """What lies in either of them."""
        return Range(self._least(left.low, right.low), self._greatest(left.high, right.high))

    def simplified(self, found: Range) -> Range:
        """The same range in simpler words."""
        return Range(
            *(b if isinstance(b, int) else number(self._analyzer.simplify(b)) for b in found)
        )

    def _plus(self, left: Any, right: Any) -> Any:
        return number(self._small(left, right) + right)

    def _times(self, left: Any, right: Any) -> Any:
        return number(self._small(left, right) * right)

    def _over(self, left: Any, right: int) -> Any:
        return left // right if isinstance(left, int) else tirx.floordiv(left, right)

    def _least(self, left: Any, right: Any) -> Any:
        if self.at_most(left, right):
            return left
        return right if self.at_most(right, left) else tirx.min(self._small(left, right), right)

    def _greatest(self, left: Any, right: Any) -> Any:
        if self.at_most(left, right):
            return right
        return left if self.at_most(right, left) else tirx.max(self._small(left, right), right)

    def _small(self, left: Any, right: Any) -> Any:
        """The left one, if both are numbers or an expression of both cannot overflow."""
        both = isinstance(left, int) and isinstance(right, int)
        if both or (self._is_small(left) and self._is_small(right)):
            return left
        raise Unproven


def _only(found: Range) -> int | None:
    """The only number of a range, if it is known."""
    known = all(isinstance(bound, int) for bound in found)
    return found.low if known and found.low == found.high else None
