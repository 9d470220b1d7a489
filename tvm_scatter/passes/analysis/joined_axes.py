"""Tensors that have the elements of another one in another order, by the axes of that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_one, number_of, same_size, static_shape

_ORDER, _JOINS = "relax.permute_dims", ("relax.reshape", "relax.expand_dims", "relax.squeeze")


@dataclass(frozen=True)
class JoinedAxes:
    """What a tensor is made of.

    Attributes
    ----------
    source : relax.Expr
        The tensor with the same elements.
    axes : tuple of tuple of int
        For each axis, the axes of the source that it goes over, from the outermost one.
    """

    source: Any
    axes: tuple[tuple[int, ...], ...]


def joined_axes(tensor: Any, values: Mapping[Any, Any]) -> JoinedAxes | None:
    """What a tensor is made of by transpositions and reshapes that only join axes.

    Parameters
    ----------
    values : mapping
        What variables are bound to.

    Returns
    -------
    JoinedAxes or None
        ``None`` if a reshape takes an axis of the source apart, or a shape is not known.
    """
    calls = []
    while (value := values.get(tensor)) is not None and operator_of(value) in (_ORDER, *_JOINS):
        calls.append(value)
        tensor = value.args[0]
    sizes = static_shape(tensor)
    if sizes is None:
        return None
    axes: list[tuple[int, ...]] | None = [(at,) for at in range(len(sizes))]
    for call in reversed(calls):
        if axes is None:
            return None
        axes = _permuted(call, axes) if operator_of(call) == _ORDER else _joined(call, axes, sizes)
    return None if axes is None else JoinedAxes(tensor, tuple(axes))


def _permuted(call: Any, axes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    order = call.attrs.axes
    if order is None:
        return axes[::-1]
    return [axes[int(at) % len(axes)] for at in order]


def _joined(
    call: Any, axes: list[tuple[int, ...]], sizes: Sequence[Any]
) -> list[tuple[int, ...]] | None:
    shape = static_shape(call)
    if shape is None:
        return None
    left = [at for group in axes for at in group if not is_one(sizes[at])]
    found: list[tuple[int, ...]] = []
    for size in shape:
        group: list[int] = []
        while left and not same_size(number_of([sizes[at] for at in group]), size):
            group.append(left.pop(0))
        if not same_size(number_of([sizes[at] for at in group]), size):
            return None
        found.append(tuple(group))
    return None if left else found
