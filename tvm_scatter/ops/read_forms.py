"""The forms in which operators read by index: which element of the data each result element is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import te, tirx

from tvm_scatter.emit.wrapping import as_signed, kept_apart

from .shapes import common_shape, is_one

Shape = Sequence[Any]


class Entry(NamedTuple):
    """An entry of an index tensor: the number of the tensor, and the coordinates in it."""

    tensor: int
    at: Sequence[Any]


@dataclass(frozen=True)
class ByAxes:
    """An index tensor for each of some axes: NumPy's ``x[i, :, j]``.

    Attributes
    ----------
    axes : tuple of int
        The indexed axes, ascending, counted from the front.
    """

    axes: tuple[int, ...]

    @property
    def addressed(self) -> tuple[int, ...]:
        """The axes of the data that are indexed, in the order of the components."""
        return self.axes

    @property
    def shared(self) -> tuple[int, ...]:
        """Axes on which data and index tensor have the same coordinate."""
        return ()

    def shape(self, data: Shape, indices: Sequence[Shape]) -> list[Any]:
        """The shape of the result."""
        rest = [dim for axis, dim in enumerate(data) if axis not in self.axes]
        return [*rest[: self._first], *common_shape(indices), *rest[self._first :]]

    def position(self, at: Shape, data: Shape, indices: Sequence[Shape]) -> list[Any]:
        """The position to read for coordinates ``at`` of the result.

        It has a coordinate or an :class:`Entry` for each axis of the data.
        """
        first, width = self._first, max(map(len, indices))
        chosen, free = at[first : first + width], iter([*at[:first], *at[first + width :]])
        entries = {
            axis: Entry(tensor, broadcast_position(shape, chosen))
            for tensor, (axis, shape) in enumerate(zip(self.axes, indices, strict=True))
        }
        return [entries[axis] if axis in entries else next(free) for axis in range(len(data))]

    @property
    def _first(self) -> int:
        """The first axis of the indices' common shape in the result, by NumPy's rule."""
        first = self.axes[0]
        return first if self.axes == tuple(range(first, first + len(self.axes))) else 0


@dataclass(frozen=True)
class ByElements:
    """One index for each element of the result, along one axis: PyTorch's ``gather``."""

    rank: int
    axis: int

    @property
    def addressed(self) -> tuple[int, ...]:
        """As :attr:`ByAxes.addressed`."""
        return (self.axis,)

    @property
    def shared(self) -> tuple[int, ...]:
        """As :attr:`ByAxes.shared`."""
        return tuple(axis for axis in range(self.rank) if axis != self.axis)

    def shape(self, data: Shape, indices: Sequence[Shape]) -> list[Any]:
        """As :meth:`ByAxes.shape`."""
        return list(indices[0])

    def position(self, at: Shape, data: Shape, indices: Sequence[Shape]) -> list[Any]:
        """As :meth:`ByAxes.position`."""
        return [*at[: self.axis], Entry(0, at), *at[self.axis + 1 :]]


@dataclass(frozen=True)
class ByTuples:
    """Index tuples along the last axis of one tensor, with batch axes in front."""

    batch: int
    components: int

    @property
    def addressed(self) -> tuple[int, ...]:
        """As :attr:`ByAxes.addressed`."""
        return tuple(range(self.batch, self.batch + self.components))

    @property
    def shared(self) -> tuple[int, ...]:
        """As :attr:`ByAxes.shared`."""
        return tuple(range(self.batch))

    def shape(self, data: Shape, indices: Sequence[Shape]) -> list[Any]:
        """As :meth:`ByAxes.shape`."""
        return [*indices[0][:-1], *data[self.batch + self.components :]]

    def position(self, at: Shape, data: Shape, indices: Sequence[Shape]) -> list[Any]:
        """As :meth:`ByAxes.position`."""
        leading = len(indices[0]) - 1
        entries = [Entry(0, (*at[:leading], component)) for component in range(self.components)]
        return [*at[: self.batch], *entries, *at[leading:]]


Form = ByAxes | ByElements | ByTuples


def read(
    form: Form, source: te.Tensor, indices: Sequence[te.Tensor], wrap: bool, guard: bool
) -> te.Tensor:
    """The tensor expression of a read.

    Parameters
    ----------
    wrap : bool
        Whether negative indices count from the end.
    guard : bool
        Whether an index out of bounds reads zero. If false, all indices must be in bounds.
    """
    shapes = [list(index.shape) for index in indices]

    def element(*at: Any) -> Any:
        position, inside = [], []
        for place, extent in zip(
            form.position(at, source.shape, shapes), source.shape, strict=True
        ):
            if isinstance(place, Entry):
                index = as_signed(indices[place.tensor](*place.at))
                if guard:
                    inside += [index >= (0 - extent if wrap else 0), index < kept_apart(extent)]
                place = tirx.Select(index < 0, index + extent, index) if wrap else index
            position.append(place)
        value = source(*position)
        if not inside:
            return value
        # A branch, not a Select, which would load the value even if the index is out of bounds.
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, source.dtype))

    shape = form.shape(source.shape, shapes)
    return te.compute(shape, element, name="read", tag="injective")


def broadcast_position(shape: Shape, at: Shape) -> list[Any]:
    """The coordinates in a tensor of shape ``shape`` that is broadcast, for coordinates ``at``."""
    behind = at[len(at) - len(shape) :]
    return [0 if is_one(dim) else i for dim, i in zip(shape, behind, strict=True)]
