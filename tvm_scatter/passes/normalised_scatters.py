"""The scatters of a chain in one form, so that they can be compared and concatenated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS, SCATTER_ND
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import (
    common_shape,
    fits,
    number_of,
    same_shape,
    same_size,
    static_shape,
)
from tvm_scatter.passes.analysis.known_values import MOST_VALUES, known_values, numbers

Emit = Callable[[Any], Any]


@dataclass(frozen=True)
class NormalisedScatter:
    """A scatter of a chain.

    Attributes
    ----------
    call : ScatterCall
        The scatter.
    wrap_negative : bool or None
        Whether negative indices count from the end; ``None`` if the indices are known not to be
        negative.
    count : int or expression
        The size of its updates on the axis on which they are concatenated.
    positions : numpy.ndarray or None
        The destination of each update as a flat position over the indexed axes, if known.
    """

    call: ScatterCall
    wrap_negative: bool | None
    count: Any
    positions: np.ndarray[Any, Any] | None = None

    def continues(self, other: NormalisedScatter) -> bool:
        """Whether this scatter differs from an earlier one in its operands only."""
        return (
            type(self) is type(other) and self.call.asks_as(other.call) and self._continues(other)
        )

    @property
    def replaces(self) -> bool:
        """Whether an update overwrites its destination, instead of being reduced with it."""
        return self.call.reduces.is_store

    def _continues(self, other: Any) -> bool:
        raise NotImplementedError

    @property
    def update_shape(self) -> list[Any]:
        """The shape of the updates after broadcasting."""
        raise NotImplementedError

    @property
    def joint(self) -> int:
        """The axis of the updates on which they are concatenated."""
        raise NotImplementedError

    @property
    def index_joint(self) -> int:
        """The axis of the index tensors on which they are concatenated."""
        return 0

    @property
    def index_dtypes(self) -> set[str]:
        """The types of the index tensors."""
        return {str(index.ty.dtype) for index in self.call.indices}

    def indices(self, visit: Emit, emit: Emit, dtype: str) -> list[Any]:
        """Emit the index tensors, cast and brought into the form that can be concatenated."""
        raise NotImplementedError

    def updates(self, visit: Emit, emit: Emit) -> Any:
        """Emit the updates in the form that can be concatenated."""
        raise NotImplementedError

    @property
    def data(self) -> Any:
        """The tensor that is scattered into."""
        return self.call.data


@dataclass(frozen=True)
class NormalisedRows(NormalisedScatter):
    """An ``index_put`` into adjacent axes: index vectors and one row of updates for each entry."""

    axes: tuple[int, ...] = ()
    common: tuple[Any, ...] = ()

    def _continues(self, other: NormalisedRows) -> bool:
        return self.axes == other.axes

    @property
    def joint(self) -> int:
        return self.axes[0]

    @property
    def update_shape(self) -> list[Any]:
        return self._around([self.count])

    def indices(self, visit: Emit, emit: Emit, dtype: str) -> list[Any]:
        vectors = []
        for index in self.call.indices:
            index = broadcasted(visit(index), self.common, emit)
            vectors.append(_cast(reshaped(index, [self.count], emit), dtype, emit))
        return vectors

    def updates(self, visit: Emit, emit: Emit) -> Any:
        updates = broadcasted(visit(self.call.updates), self._around(self.common), emit)
        return reshaped(updates, self.update_shape, emit)

    def positions_over(self, first: int, last: int) -> np.ndarray[Any, Any] | None:
        """The flat positions that are written, over the axes ``first`` to ``last``, if known.

        These axes include the indexed ones. An entry writes a position for each place on the
        others.
        """
        shape = static_shape(self.data) or []
        extents = numbers(shape[first : last + 1])
        if self.positions is None or extents is None:
            return None
        begin, end = self.axes[0] - first, self.axes[-1] + 1 - first
        before, own, behind = (
            int(np.prod(part, dtype=np.int64))
            for part in (extents[:begin], extents[begin:end], extents[end:])
        )
        if before * len(self.positions) * behind > MOST_VALUES:
            return None
        starts = np.arange(before)[:, None, None] * own + self.positions[None, :, None]
        return np.asarray(starts * behind + np.arange(behind)).reshape(-1)

    def _around(self, middle: Sequence[Any]) -> list[Any]:
        shape = static_shape(self.data) or []
        return [*shape[: self.axes[0]], *middle, *shape[self.axes[-1] + 1 :]]


@dataclass(frozen=True)
class NormalisedTuples(NormalisedScatter):
    """A ``scatter_nd``: tuples of indices and one row of updates for each."""

    components: int = 0

    def _continues(self, other: NormalisedTuples) -> bool:
        return self.components == other.components

    @property
    def joint(self) -> int:
        return 0

    @property
    def update_shape(self) -> list[Any]:
        return [self.count, *(static_shape(self.data) or [])[self.components :]]

    def indices(self, visit: Emit, emit: Emit, dtype: str) -> list[Any]:
        index = reshaped(visit(self.call.indices[0]), [self.count, self.components], emit)
        return [_cast(index, dtype, emit)]

    def updates(self, visit: Emit, emit: Emit) -> Any:
        return reshaped(visit(self.call.updates), self.update_shape, emit)


@dataclass(frozen=True)
class NormalisedElements(NormalisedScatter):
    """A ``scatter_elements``: one index for each update."""

    axis: int = 0

    def _continues(self, other: NormalisedElements) -> bool:
        boxes = zip(self.update_shape, other.update_shape, strict=True)
        return self.axis == other.axis and all(
            at == self.axis or same_size(*sizes) for at, sizes in enumerate(boxes)
        )

    @property
    def joint(self) -> int:
        return self.axis

    @property
    def update_shape(self) -> list[Any]:
        return static_shape(self.call.indices[0]) or []

    @property
    def index_joint(self) -> int:
        return self.axis

    def indices(self, visit: Emit, emit: Emit, dtype: str) -> list[Any]:
        return [_cast(visit(self.call.indices[0]), dtype, emit)]

    def updates(self, visit: Emit, emit: Emit) -> Any:
        return broadcasted(visit(self.call.updates), self.update_shape, emit)


def normalised(call: ScatterCall, values: Mapping[Any, Any]) -> NormalisedScatter | None:
    """The normalised form of a scatter, or ``None`` if it cannot be part of a chain."""
    parts = any(isinstance(index, relax.TupleGetItem) for index in call.indices)
    if (
        not static_shape(call.data)
        or parts
        # What is joined has another order.
        or call.ordering
        or not call.reduces.reduces_into_data(call.include_self)
    ):
        return None
    scatter = _NORMALISE[call.form](call, values) if call.form in _NORMALISE else None
    # Joined with other index types they would be cast, and large ones would wrap around.
    return None if scatter is None or "uint64" in scatter.index_dtypes else scatter


def normalised_rows(call: ScatterCall, values: Mapping[Any, Any]) -> NormalisedRows | None:
    """The normalised form of an ``index_put``; ``None`` if its axes are not adjacent."""
    data, updates = static_shape(call.data), static_shape(call.updates)
    known_shapes = [static_shape(index) for index in call.indices]
    shapes = [shape for shape in known_shapes if shape is not None]
    if data is None or updates is None or len(shapes) < len(known_shapes):
        return None
    axes = call.axes
    if axes != tuple(range(axes[0], axes[0] + len(axes))) or axes[-1] >= len(data):
        return None
    common = common_shape(shapes)
    selected = [*data[: axes[0]], *common, *data[axes[-1] + 1 :]]
    # Lowering checks shapes that are not known to broadcast.
    if not fits(updates, selected) or not all(fits(shape, common) for shape in shapes):
        return None
    known = [known_values(index, values) for index in call.indices]
    positions = _positions(known, data, axes)
    return NormalisedRows(
        call,
        call.wrap_negative if positions is None else None,
        number_of(common),
        positions,
        axes=axes,
        common=tuple(common),
    )


def _tuples(call: ScatterCall, _values: Any) -> NormalisedTuples | None:
    data, index, updates = map(static_shape, call.tensors)
    if data is None or not index or updates is None:
        return None
    components = numbers(index[-1:])
    if components is None or not 1 <= components[0] <= len(data):
        return None
    expected = [*index[:-1], *data[components[0] :]]
    if not same_shape(updates, expected):
        return None
    count = number_of(index[:-1])
    return NormalisedTuples(call, call.wrap_negative, count, components=components[0])


def _elements(call: ScatterCall, _values: Any) -> NormalisedElements | None:
    data, index, updates = map(static_shape, call.tensors)
    if not data or index is None or updates is None or len(index) != len(data):
        return None
    # Lowering crops updates that are larger than the index. Such scatters are not merged.
    if updates and not all(map(same_size, index, updates)):
        return None
    [axis] = call.axes
    if not -len(data) <= axis < len(data):
        return None
    axis %= len(data)
    return NormalisedElements(call, call.wrap_negative, index[axis], axis=axis)


_NORMALISE: dict[str, Callable[[ScatterCall, Mapping[Any, Any]], NormalisedScatter | None]] = {
    INDEX_PUT: normalised_rows,
    SCATTER_ELEMENTS: _elements,
    SCATTER_ND: _tuples,
}


def _positions(
    indices: Sequence[np.ndarray[Any, Any] | None], data: Sequence[Any], axes: tuple[int, ...]
) -> np.ndarray[Any, Any] | None:
    extents = numbers([data[axis] for axis in axes])
    if extents is None or any(index is None for index in indices):
        return None
    grids = np.broadcast_arrays(*(np.asarray(index, dtype=np.int64) for index in indices))
    for index, extent in zip(grids, extents, strict=True):
        # Operators disagree on negative indices and on indices that are out of bounds.
        if index.size and not 0 <= index.min() <= index.max() < extent:
            return None
    return np.asarray(np.ravel_multi_index(tuple(grids), extents)).reshape(-1)


def broadcasted(tensor: Any, shape: Sequence[Any], emit: Emit) -> Any:
    """A tensor, broadcast to a shape."""
    if same_shape(static_shape(tensor), shape):
        return tensor
    return emit(relax.op.broadcast_to(tensor, list(shape)))


def reshaped(tensor: Any, shape: Sequence[Any], emit: Emit) -> Any:
    """A tensor in another shape."""
    if same_shape(static_shape(tensor), shape):
        return tensor
    return emit(relax.op.reshape(tensor, list(shape)))


def _cast(tensor: Any, dtype: str, emit: Emit) -> Any:
    if str(tensor.ty.dtype) == dtype:
        return tensor
    if isinstance(tensor, tvm.ir.GenericConst):
        return relax.const(tensor.value.numpy().astype(dtype), dtype)
    return emit(relax.op.astype(tensor, dtype))
