"""Rows of updates of which several elements have one logit: the columns of a head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from .computed_updates import ComputedUpdates, same_number, substitute, unravelled, with_positions

#: The most threads that can share a logit.
WARP = 32


class WeightedRows:
    """How an update, the number of a head and a column name an element of the updates.

    Parameters
    ----------
    updates : ComputedUpdates
        The updates, which have logits.
    count : int or expression
        The number of updates.

    Attributes
    ----------
    heads, columns : int or expression
        The logits of a row, and the elements that have one of them. They are neighbours.
    """

    def __init__(self, updates: ComputedUpdates, count: Any) -> None:
        self._updates = updates
        shape = updates.shape
        first = leading_axes(updates, count)
        found = set(tirx.analysis.undefined_vars(updates.logit)) | updates.sum_axes
        last = len(shape)
        while last > first and updates.axes[last - 1] not in found:
            last -= 1
        self._parts = (shape[:first], shape[first:last], shape[last:])
        self.heads, self.columns = (_product(part) for part in self._parts[1:])

    @property
    def last_column(self) -> Any:
        """The size of the last axis of the columns."""
        return next((size for size in reversed(self._parts[2]) if size != 1), 1)

    def vector(self, widest: int) -> int:
        """The most elements of a vector that have one logit, if vectors have up to so many."""
        last, vector = self.last_column, widest
        while vector > 1 and not (isinstance(last, int) and last % vector == 0):
            vector //= 2
        return vector

    def sharing(self, vector: int) -> int:
        """The threads that share a logit, with a vector each: a power of two."""
        lanes = 1
        while lanes * vector < self.columns:
            lanes *= 2
        return lanes

    def value(self, update: Any, head: Any, column: Any) -> Any:
        """An element."""
        return self._at(self._updates.value, update, head, column)

    def logit(self, update: Any, head: Any) -> Any:
        """The logit of all columns of a head."""
        return self._at(self._updates.logit, update, head, tirx.IntImm("int64", 0))

    def _at(self, expression: Any, *numbers: Any) -> Any:
        analyzer = Analyzer()
        coordinates: list[Any] = []
        for number, sizes in zip(numbers, self._parts, strict=True):
            size = _product(sizes)
            if isinstance(size, int) and size == 1:
                number = tirx.IntImm("int64", 0)
            elif isinstance(size, int) and isinstance(number, tvm.ir.Var):
                # Then divisions cancel out, and a compiler sees that elements are neighbours.
                analyzer.bind(number, tvm.ir.Range(0, size))
            coordinates += unravelled(number, sizes)
        known = {
            axis: tirx.Cast(str(axis.ty.dtype), coordinate)
            for axis, coordinate in zip(self._updates.axes, coordinates, strict=True)
        }
        return self._updates.emitted(with_positions(substitute(expression, known), analyzer))


def leading_axes(updates: ComputedUpdates, count: Any) -> int:
    """How many of the first axes make up the number of updates; all of them if none do."""
    first = 0
    while first < len(updates.shape) and not same_number(_product(updates.shape[:first]), count):
        first += 1
    return first


def _product(sizes: Sequence[Any]) -> Any:
    return reduce(mul, sizes, 1)
