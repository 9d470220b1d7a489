"""The form in which a segment is reduced, before it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from tvm_scatter.emit.wrapping import wrapping_add, wrapping_sub
from tvm_scatter.problem.reductions import FLOATS, Reduction

from . import combiners, total_order, values


class Accumulator:
    """Reduces values of a type.

    Parameters
    ----------
    reduction : Reduction
        How.
    stored : str
        The data type of the values.

    Attributes
    ----------
    dtype : str
        The data type of what it keeps.
    """

    def __init__(self, reduction: Reduction, stored: str) -> None:
        self._reduction = reduction
        self._stored = stored
        self.dtype = values.accumulator_dtype(reduction, stored)

    @property
    def start(self) -> Any:
        """Nothing combined, as a constant."""
        return values.start_value(self._reduction, self.dtype)

    def take(self, value: Any) -> Any:
        """A value in the form that is kept."""
        return values.convert(value, self.dtype)

    def combine(self, kept: Any, other: Any) -> Any:
        """Two of what is kept."""
        return combiners.combine(self._reduction, self.dtype, kept, other)

    def give(self, kept: Any, count: Any, old: Any) -> Any:
        """What is kept as a value; ``old`` is the data that it includes, or ``None``.

        Parameters
        ----------
        count : expression
            How many values were combined, for a mean.
        """
        return values.stored(self._reduction, self._stored, self.number(kept, count), old)

    def number(self, kept: Any, count: Any) -> Any:
        """The value of what is kept, in its type: a mean is divided by the count."""
        return values.mean(self.dtype, kept, count) if self._reduction.needs_count else kept


class Extremes(Accumulator):
    """Minima and maxima of floats as those of integers, which one instruction computes.

    The integers are in IEEE 754's total order, moved so far that NaNs beyond the wrong end of it
    come to the end that wins. Which NaN it was is forgotten.
    """

    def __init__(self, reduction: Reduction, stored: str) -> None:
        super().__init__(reduction, stored)
        self._float = self.dtype
        self.dtype = f"int{8 * np.dtype(self._float).itemsize}"
        limits = np.iinfo(self.dtype)
        infinity = int(np.array(np.inf, self._float).view(self.dtype))
        #: Of infinity and minus infinity, in IEEE 754's total order.
        places = infinity, -1 - infinity
        end = limits.max - places[0] if reduction.selects_least else limits.min - places[1]
        self._moved = tirx.const(end, self.dtype)
        self._first, self._last = sorted(place + end for place in places)

    @property
    def start(self) -> Any:
        place = self._last if self._reduction.selects_least else self._first
        return tirx.const(place, self.dtype)

    def take(self, value: Any) -> Any:
        bits = total_order.bits_of(values.convert(value, self._float))
        return wrapping_add(total_order.ordered(bits), self._moved, self.dtype)

    def combine(self, kept: Any, other: Any) -> Any:
        return (tirx.min if self._reduction.selects_least else tirx.max)(kept, other)

    def give(self, kept: Any, count: Any, old: Any) -> Any:
        bits = total_order.ordered(wrapping_sub(kept, self._moved, self.dtype))
        is_nan = kept < self._first if self._reduction.selects_least else kept > self._last
        bits = total_order.either(is_nan, total_order.last(self._reduction, self._float), bits)
        number = tirx.reinterpret(self._float, bits)
        if self._float != self._stored:
            return values.stored(self._reduction, self._stored, number, old)
        if old is None:
            return number
        old_bits = total_order.bits_of(old)
        kept_nan = total_order.is_nan(old_bits, self._float)
        return tirx.reinterpret(self._float, total_order.either(kept_nan, old_bits, bits))


def accumulator(reduction: Reduction, stored: str) -> Accumulator:
    """How values of a type are reduced."""
    kind = Extremes if reduction.is_extreme and stored in FLOATS else Accumulator
    return kind(reduction, stored)
