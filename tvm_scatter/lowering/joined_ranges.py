"""Reads a virtual tensor that is a concatenation of ranges of other tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

#: A range of positions: its end, and a function that reads the element at given indices.
JoinedRange = tuple[Any, Callable[[Any], Any]]


def reader(ranges: Sequence[JoinedRange], position: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function that reads the element at given indices.

    It finds the range of ``position`` by bisection, which needs fewer comparisons than a chain of
    all ranges.
    """

    def read(at: Any, low: int, high: int) -> Any:
        if high - low == 1:
            return ranges[low][1](at)
        middle = (low + high) // 2
        return tirx.if_then_else(
            position(at) < ranges[middle - 1][0], read(at, low, middle), read(at, middle, high)
        )

    return lambda *at: read(at, 0, len(ranges))


def shifted(tensor: Any, axis: int, shift: int) -> Callable[[Any], Any]:
    """A function that reads a tensor at given indices, moved by ``shift`` along an axis."""
    return lambda at: tensor(*at[:axis], at[axis] + shift, *at[axis + 1 :])
