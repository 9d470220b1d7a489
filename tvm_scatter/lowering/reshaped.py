"""Reshapes that keep the sizes nobody knows: they divide by none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tvm_scatter.emit.computed_updates import ravelled, unravelled
from tvm_scatter.ops.shapes import is_one, same_size


def reshaped(tensor: te.Tensor, shape: Sequence[Any]) -> te.Tensor | None:
    """A tensor in another shape, whose axes of unknown sizes are axes of the tensor.

    ``None`` for other shapes, of which TVM counts all elements and divides by the sizes. Such as
    (n, 128) as (n, 4, 32): TVM would divide ``128 * i + 32 * j + k`` by what it takes from ``n``.
    """
    groups = _groups(tensor.shape, shape)
    if groups is None:
        return None

    def element(*at: Any) -> Any:
        place: list[Any] = [tirx.IntImm("int64", 0)] * tensor.ndim
        for before, after in groups:
            position = ravelled([at[axis] for axis in after], [shape[axis] for axis in after])
            coordinates = unravelled(position, [tensor.shape[axis] for axis in before])
            for axis, coordinate in zip(before, coordinates, strict=True):
                place[axis] = coordinate
        return tensor(*place)

    return te.compute(shape, element, name="reshaped")


def _groups(
    before: Sequence[Any], after: Sequence[Any]
) -> list[tuple[list[int], list[int]]] | None:
    """The axes of two shapes, apart from those of size 1, in groups of as many elements.

    A size that is unknown is a group of its own. ``None`` if it is none, or there are no elements.
    """
    left, right = (
        [axis for axis, size in enumerate(shape) if not is_one(size)] for shape in (before, after)
    )
    found = []
    while left and right:
        group = _first_group(before, left, after, right)
        if group is None:
            return None
        found.append(group)
    return None if left or right else found


def _first_group(
    before: Sequence[Any], left: list[int], after: Sequence[Any], right: list[int]
) -> tuple[list[int], list[int]] | None:
    """Take the first of the axes that are left of both shapes, until they have as many elements."""
    old, new = [left.pop(0)], [right.pop(0)]
    if same_size(before[old[0]], after[new[0]]):
        return old, new
    counts = [_number(before[old[0]]), _number(after[new[0]])]
    while all(counts) and counts[0] != counts[1]:
        which = int(counts[1] < counts[0])
        axes, shape, group = ((left, before, old), (right, after, new))[which]
        if not axes:
            return None
        group.append(axes.pop(0))
        counts[which] *= _number(shape[group[-1]])
    return (old, new) if all(counts) else None


def _number(size: Any) -> int:
    """A size that is known, and 0 for others."""
    return int(size) if isinstance(size, int | tirx.IntImm) else 0
