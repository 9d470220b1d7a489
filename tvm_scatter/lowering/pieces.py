"""Reading a tensor that is put together of ranges of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

#: A range of positions: its end, and what is read there.
Piece = tuple[Any, Callable[[Any], Any]]


def reader(pieces: Sequence[Piece], position: Callable[[Any], Any]) -> Callable[..., Any]:
    """Find the piece by bisection: a chain of comparisons would cost as many as there are."""

    def read(at: Any, low: int, high: int) -> Any:
        if high - low == 1:
            return pieces[low][1](at)
        middle = (low + high) // 2
        return tirx.if_then_else(
            position(at) < pieces[middle - 1][0], read(at, low, middle), read(at, middle, high)
        )

    return lambda *at: read(at, 0, len(pieces))


def shifted(tensor: Any, axis: int, shift: int) -> Callable[[Any], Any]:
    """Read a tensor at a position, moved along an axis."""
    return lambda at: tensor(*at[:axis], at[axis] + shift, *at[axis + 1 :])
