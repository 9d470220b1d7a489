"""What the updates of lines are computed from, so that it can be computed in rows.

Lines are the first axes of a tensor, such as the channels of an image; the others number entries.
Turned, each entry has its lines side by side, as a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvm_scatter.lowering.inlined import ELEMENTWISE, RESHAPES
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_one, plain_shape, same_shape

#: The most operators that are computed anew.
_MOST = 24


@dataclass(frozen=True)
class Leaf:
    """A tensor that values are computed from.

    Attributes
    ----------
    tensor : relax.Expr
        The tensor.
    shape : tuple of (int or expression)
        What it is broadcast to before it gets another shape.
    """

    tensor: Any
    shape: tuple[Any, ...]

    def is_same(self, other: Leaf) -> bool:
        """Whether both are the same tensor, or equal constants."""
        if isinstance(self.tensor, tvm.ir.GenericConst):
            return bool(tvm_ffi.structural_equal(self.tensor, other.tensor))
        return bool(self.tensor.same_as(other.tensor)) and same_shape(self.shape, other.shape)


class OfBoth(Leaf):
    """A tensor with an element for each line and entry."""


class OfEntries(Leaf):
    """A tensor with an element for each entry."""


class OfLines(Leaf):
    """A tensor with an element for each line."""


class OfNeither(Leaf):
    """A single number."""


@dataclass(frozen=True)
class Computed:
    """What an operator computes of other values, element by element.

    Attributes
    ----------
    call : relax.Call
        The call.
    parts : tuple
        Its operands. What is no tensor is as it stands in the call.
    """

    call: Any
    parts: tuple[Any, ...]


#: A value for each line and entry, or a part of one.
Value = Leaf | Computed


def line_value(
    tensor: Any, lines: int, values: Mapping[Any, Any], computed: Callable[[Any], bool]
) -> Value:
    """What a tensor of lines is computed from.

    Parameters
    ----------
    lines : int
        The number of lines, the product of some of its first axes.
    values : mapping
        The expression that each variable is bound to.
    computed : callable
        Whether a variable may be computed anew, from what its expression reads.
    """
    left = [_MOST]

    def find(tensor: Any) -> Value:
        shape = plain_shape(tensor) or ()
        at = axes_of_lines(shape, lines)
        whole = OfBoth(tensor, shape)
        value = values.get(tensor) if isinstance(tensor, relax.Var) else None
        name = operator_of(value)
        if at is None or value is None or not computed(tensor):
            return whole
        if name in RESHAPES and axes_of_lines(plain_shape(value.args[0]), lines) is not None:
            return find(value.args[0])
        broadcasts = name == "relax.broadcast_to"
        left[0] -= 1
        if left[0] < 0 or not (broadcasts or name in ELEMENTWISE):
            return whole
        parts = []
        for operand in value.args[:1] if broadcasts else value.args:
            if not isinstance(getattr(operand, "ty", None), relax.TensorType):
                parts.append(operand)
                continue
            part = _part(operand, shape, at, find)
            if part is None:
                return whole
            parts.append(part)
        if broadcasts:
            # What it is broadcast to follows from where it is read.
            return parts[0] if isinstance(parts[0], OfBoth | Computed) else whole
        return Computed(value, tuple(parts))

    return find(tensor)


def _part(
    operand: Any, shape: Sequence[int], at: int, find: Callable[[Any], Value]
) -> Value | None:
    """An operand of what has a shape, whose axes before ``at`` are those of lines."""
    own = plain_shape(operand)
    if own is None or len(own) > len(shape):
        return None
    padded = [*[1] * (len(shape) - len(own)), *own]
    if all(map(is_one, padded)):
        return OfNeither(operand, ())
    if same_shape(padded, shape):
        return find(operand) if len(own) == len(shape) else OfBoth(operand, tuple(shape))
    if all(map(is_one, padded[:at])):
        return OfEntries(operand, tuple(shape[at:]))
    if all(map(is_one, padded[at:])):
        return OfLines(operand, (*shape[:at], *[1] * (len(shape) - at)))
    return None


def axes_of_lines(shape: Sequence[Any] | None, lines: int) -> int | None:
    """How many of the first axes are those of lines; ``None`` if none are."""
    product = 1
    for at, size in enumerate(shape or ()):
        if not isinstance(size, int):
            return None
        product *= size
        if product == lines:
            return at + 1
    return None


def leaves_in(value: Any) -> Iterator[Leaf]:
    """The tensors that a value is computed from."""
    if isinstance(value, Leaf):
        yield value
    elif isinstance(value, Computed):
        for part in value.parts:
            yield from leaves_in(part)


def differ_in_entries(value: Any, other: Any) -> bool:
    """Whether two values are computed alike, of the same lines, from other tensors of entries."""
    if type(value) is not type(other):
        return False
    if isinstance(value, OfEntries):
        dtypes = {str(each.tensor.ty.dtype) for each in (value, other)}
        return same_shape(value.shape, other.shape) and len(dtypes) == 1
    if isinstance(value, Leaf):
        return value.is_same(other)
    if isinstance(value, Computed):
        return (
            value.call.op.same_as(other.call.op)
            and bool(tvm_ffi.structural_equal(value.call.attrs, other.call.attrs))
            and len(value.parts) == len(other.parts)
            and all(map(differ_in_entries, value.parts, other.parts))
        )
    return bool(tvm_ffi.structural_equal(value, other))
