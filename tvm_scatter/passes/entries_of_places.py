"""Scatters whose entries each go to one place of some axes, and have elements along the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import (
    common_shape,
    fits,
    number_of,
    plain_shape,
    same_size,
)
from tvm_scatter.passes.analysis.known_values import known_values

from .functions import Emit
from .normalised_scatters import broadcasted, reshaped

#: An axis of the data or of the index tensors' common shape, and its number.
_Axis = tuple[str, int]
_DATA, _COMMON = "data", "common"


@dataclass(frozen=True)
class Entries:
    """What an ``index_put`` writes.

    Attributes
    ----------
    call : ScatterCall
        The call.
    common : tuple
        The common shape of its index tensors, in the sizes of the updates where those have some.
        Sizes that only the run time knows may differ between the two. A scatter of as many
        updates by the same indices then finds that.
    axes : tuple of int
        The axes of the data that say to which place an entry goes, ascending. Those of which an
        index tensor names all positions in order say nothing.
    indices : tuple of relax.Expr
        Its index tensors for these.
    selected : tuple of (str, int)
        The axes that its updates have once they are broadcast.
    """

    call: ScatterCall
    common: tuple[Any, ...]
    axes: tuple[int, ...]
    indices: tuple[Any, ...]
    selected: tuple[_Axis, ...]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the data."""
        return plain_shape(self.call.data) or ()

    @property
    def places(self) -> list[Any]:
        """The sizes of the axes that say where an entry goes."""
        return [self.shape[axis] for axis in self.axes]

    @property
    def slices(self) -> list[int]:
        """The axes along which an entry has elements."""
        return [axis for axis in range(len(self.shape)) if axis not in self.axes]

    @property
    def shape_of_entries(self) -> list[Any]:
        """The common shape without what runs along a whole axis of the data."""
        return [self.common[axis] for kind, axis in self.selected if kind == _COMMON]

    @property
    def count(self) -> Any:
        """The number of entries."""
        return number_of(self.shape_of_entries)

    @property
    def are_counted_anew(self) -> bool:
        """Whether the index tensors have other numbers than those of the call."""
        return len(self.indices) < len(self.call.indices)

    @property
    def in_front(self) -> list[int]:
        """The axes that stay in front where an axis of entries is replaced by those of places."""
        first, last = self.axes[0], self.axes[-1]
        return list(range(first)) if last - first + 1 == len(self.axes) else []

    def index_tensors(self, emit: Emit) -> tuple[Any, ...]:
        """The index tensors, which broadcast to :attr:`shape_of_entries`."""
        if len(self.shape_of_entries) == len(self.common):
            return self.indices
        kept = [axis for kind, axis in self.selected if kind == _COMMON]
        padded = [_padded(plain_shape(index) or (), len(self.common)) for index in self.indices]
        return tuple(
            reshaped(index, [shape[axis] for axis in kept], emit)
            for index, shape in zip(self.indices, padded, strict=True)
        )

    def rows(self, emit: Emit) -> Any:
        """The updates, with one axis of entries behind the axes :attr:`in_front`."""
        sizes = {_DATA: self.shape, _COMMON: self.common}
        whole = [sizes[kind][axis] for kind, axis in self.selected]
        updates = broadcasted(self.call.updates, whole, emit)
        entries = [each for each in self.selected if each[0] == _COMMON]
        front = [(_DATA, axis) for axis in self.in_front]
        behind = [(_DATA, axis) for axis in self.slices if axis not in self.in_front]
        moved = [self.selected.index(each) for each in (*front, *entries, *behind)]
        if moved != sorted(moved):
            updates = emit(relax.op.permute_dims(updates, moved))
        before, after = ([self.shape[axis] for _, axis in part] for part in (front, behind))
        return reshaped(updates, [*before, self.count, *after], emit)


def entries_of(call: ScatterCall, values: Mapping[Any, Any]) -> Entries | None:
    """The entries of a scatter; ``None`` if it is no ``index_put`` of known shapes.

    Parameters
    ----------
    values : mapping
        The expression that each variable is bound to.
    """
    if call.form != INDEX_PUT:
        return None
    data, updates = plain_shape(call.data), plain_shape(call.updates)
    shapes = [plain_shape(index) for index in call.indices]
    if data is None or updates is None or None in shapes:
        return None
    axes = call.axes
    if list(axes) != sorted(set(axes)) or not 0 <= axes[0] <= axes[-1] < len(data):
        return None
    common = tuple(common_shape([shape for shape in shapes if shape is not None]))
    entries: list[_Axis] = [(_COMMON, axis) for axis in range(len(common))]
    slices: list[_Axis] = [(_DATA, axis) for axis in range(len(data)) if axis not in axes]
    first = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0
    selected = [*slices[:first], *entries, *slices[first:]]
    # Lowering reports those that do not broadcast.
    if not all(_may_fit(shape or (), common) for shape in shapes) or len(updates) > len(selected):
        return None
    whole = _whole_axes(call, common, data, values)
    if whole and not all(fits(shape or (), common) for shape in shapes):
        # The error would count index tensors without those that run over a whole axis.
        return None
    selected = [whole.get(each, each) for each in selected]
    sizes = _sizes_of_updates(updates, selected, data, common)
    kept = [at for at, axis in enumerate(axes) if (_DATA, axis) not in whole.values()]
    if sizes is None or not kept:
        return None
    named, indices = (tuple(each[at] for at in kept) for each in (axes, call.indices))
    return Entries(call, sizes, named, indices, tuple(selected))


def _sizes_of_updates(
    updates: tuple[Any, ...],
    selected: Sequence[_Axis],
    data: tuple[Any, ...],
    common: tuple[Any, ...],
) -> tuple[Any, ...] | None:
    """The common shape, in sizes that updates have; ``None`` if they do not fit what is selected.

    They must certainly fit the data, of which nothing else asks then.
    """
    sizes = list(common)
    for size, (kind, axis) in zip(reversed(updates), reversed(selected), strict=False):
        wanted = data[axis] if kind == _DATA else common[axis]
        if fits([size], [wanted]):
            continue
        if kind == _DATA or not _may_fit([size], [wanted]):
            return None
        sizes[axis] = size
    return tuple(sizes)


def _whole_axes(
    call: ScatterCall, common: tuple[Any, ...], data: tuple[Any, ...], values: Mapping[Any, Any]
) -> dict[_Axis, _Axis]:
    """The axes of the common shape that run over a whole axis of the data, and that axis."""
    found: dict[_Axis, _Axis] = {}
    shapes = [_padded(plain_shape(index) or (), len(common)) for index in call.indices]
    for number, (index, axis) in enumerate(zip(call.indices, call.axes, strict=True)):
        varies = [at for at, size in enumerate(shapes[number]) if not same_size(size, 1)]
        others = [shape for at, shape in enumerate(shapes) if at != number]
        if len(varies) != 1 or not all(same_size(shape[varies[0]], 1) for shape in others):
            continue
        positions = known_values(index, values)
        if positions is None or not same_size(data[axis], positions.size):
            continue
        if np.array_equal(positions.reshape(-1), np.arange(positions.size)):
            found[_COMMON, varies[0]] = (_DATA, axis)
    return found


def _may_fit(shape: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether a shape broadcasts to another, or may do so when sizes are known."""
    behind = wanted[len(wanted) - len(shape) :]
    return all(
        fits([size], [other]) or not (isinstance(size, int) and isinstance(other, int))
        for size, other in zip(shape, behind, strict=True)
    )


def _padded(shape: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)
