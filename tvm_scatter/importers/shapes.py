"""Shapes of operands in importers: an ``int`` for a static size, an expression for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.shapes import same_size


def shape_of(tensor: Any) -> tuple[Any, ...]:
    """The shape of a Relax tensor.

    Raises
    ------
    ScatterError
        If only the rank is known.
    """
    shape = tensor.ty.shape
    if shape is None or not hasattr(shape, "values"):
        raise ScatterError(
            f"scatter: the shape of every operand must be known, at least symbolically; one has "
            f"only a rank of {tensor.ty.ndim}."
        )
    return tuple(int(dim) if isinstance(dim, int | tirx.IntImm) else dim for dim in shape.values)


def text(shape: Sequence[Any]) -> str:
    """A shape as text, for error messages."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def number_of(shape: Sequence[Any]) -> Any:
    """The number of elements of a shape: an ``int`` or an expression."""
    number: Any = 1
    for dim in shape:
        if isinstance(dim, int) and dim == 0:
            return 0
        number = number * dim
    return number


def is_empty(tensor: Any) -> bool:
    """Whether a tensor certainly has no element."""
    return 0 in [dim for dim in shape_of(tensor) if isinstance(dim, int)]


def differ(left: Any, right: Any) -> bool:
    """Whether two sizes certainly differ."""
    return isinstance(left, int) and isinstance(right, int) and left != right


def same_shape(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two shapes are certainly equal."""
    return len(left) == len(right) and all(map(same_size, left, right))
