"""Shapes of operands in importers: an ``int`` for a static size, an expression for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_scatter.ops.shapes import known_shape, plain_size


def shape_of(tensor: Any) -> tuple[Any, ...]:
    """The shape of a Relax tensor.

    Raises
    ------
    ScatterError
        If only the rank is known.
    """
    return tuple(map(plain_size, known_shape("scatter", tensor)))


def text(shape: Sequence[Any]) -> str:
    """A shape as text, for error messages."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def differ(left: Any, right: Any) -> bool:
    """Whether two sizes certainly differ."""
    return isinstance(left, int) and isinstance(right, int) and left != right
