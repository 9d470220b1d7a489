"""Shapes of operands in importers: an ``int`` for a static size, an expression for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tvm_scatter.ops.shapes import known_shape


def shape_of(tensor: Any) -> tuple[Any, ...]:
    """The shape of a Relax tensor.

    Raises
    ------
    ScatterError
        If only the rank is known.
    """
    sizes = known_shape("scatter", tensor)
    return tuple(int(dim) if isinstance(dim, int | tirx.IntImm) else dim for dim in sizes)


def text(shape: Sequence[Any]) -> str:
    """A shape as text, for error messages."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def as_expression(size: Any) -> Any:
    """A size as an expression of 64 bits: of plain numbers TVM takes 32."""
    return tirx.const(size, "int64") if isinstance(size, int) else size


def differ(left: Any, right: Any) -> bool:
    """Whether two sizes certainly differ."""
    return isinstance(left, int) and isinstance(right, int) and left != right
