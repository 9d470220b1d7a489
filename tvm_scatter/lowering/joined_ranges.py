"""Reading a tensor that is put together of ranges of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

#: A range of positions: its end, and what is read there.
JoinedRange = tuple[Any, Callable[[Any], Any]]


def reader(ranges: Sequence[JoinedRange], position: Callable[[Any], Any]) -> Callable[..., Any]:
    """Find the range by bisection: a chain of comparisons would cost as many as there are."""

    def read(at: Any, low: int, high: int) -> Any:
        if high - low == 1:
            return ranges[low][1](at)
        middle = (low + high) // 2
        return tirx.if_then_else(
            position(at) < ranges[middle - 1][0], read(at, low, middle), read(at, middle, high)
        )

    return lambda *at: read(at, 0, len(ranges))


def shifted(tensor: Any, axis: int, shift: int) -> Callable[[Any], Any]:
    """Read a tensor at a position, moved along an axis."""
    return lambda at: tensor(*at[:axis], at[axis] + shift, *at[axis + 1 :])
