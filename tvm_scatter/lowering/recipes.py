"""How operands are computed: functions of tensor expressions that compare equal if they do equal.

Each is given the tensors that it reads, as a list, and the shapes that it needs. Shapes are
arguments, so that symbolic sizes become parameters of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx, topi

from tvm_scatter.ops.scatter_call import CopiedRange

from .joined_ranges import JoinedRange, reader, shifted

Tensors = Sequence[te.Tensor]


def signed(sources: Tensors) -> te.Tensor:
    """An index of type uint64 as int64: a number beyond int64 as the largest of int64.

    Either is out of bounds for every extent.
    """
    [source] = sources
    most = tirx.const(int(np.iinfo("int64").max), "uint64")
    return te.compute(source.shape, lambda *at: tirx.Cast("int64", tirx.min(source(*at), most)))


def wide(sources: Tensors) -> te.Tensor:
    """An index as int64."""
    return topi.cast(sources[0], "int64")


@dataclass(frozen=True)
class Zeros:
    """A tensor of zeros, made of nothing."""

    dtype: str

    def __call__(self, _sources: Tensors, shape: Sequence[Any]) -> te.Tensor:
        return topi.full(shape, self.dtype, 0)


@dataclass(frozen=True)
class Broadcast:
    """A tensor broadcast to a shape.

    TVM's own knows nothing of sizes that have been checked to be equal.

    Attributes
    ----------
    of_one : tuple of bool
        Which dimensions of the tensor have one element.
    """

    of_one: tuple[bool, ...]

    def __call__(self, sources: Tensors, shape: Sequence[Any]) -> te.Tensor:
        [source] = sources

        def element(*at: Any) -> Any:
            behind = at[len(at) - len(self.of_one) :]
            return source(*(0 if one else i for one, i in zip(self.of_one, behind, strict=True)))

        return te.compute(shape, element, name="broadcast_to", tag="broadcast")


def crop(sources: Tensors, shape: Sequence[Any]) -> te.Tensor:
    """The box of a tensor that begins at its first element."""
    [source] = sources
    return te.compute(shape, lambda *at: source(*at), name="crop")


@dataclass(frozen=True)
class Joined:
    """Ranges of several tensors, one behind the other along an axis."""

    ranges: tuple[CopiedRange, ...]
    axis: int

    def __call__(self, sources: Tensors) -> te.Tensor:
        joined: list[JoinedRange] = []
        end = 0
        for source, begin, _, length in self.ranges:
            joined.append((end + length, shifted(sources[source], self.axis, begin - end)))
            end += length
        shape = [end if at == self.axis else dim for at, dim in enumerate(sources[0].shape)]
        return te.compute(shape, reader(joined, lambda at: at[self.axis]), name="join")


@dataclass(frozen=True)
class LinearElements:
    """One index for each element, as the element's place in the flattened data; -1 if it is bad.

    Attributes
    ----------
    axis : int
        What the index runs along. The other coordinates are those of the index itself.
    wrap : bool
        Whether negative indices count from the end.
    """

    axis: int
    wrap: bool

    def __call__(self, sources: Tensors, box: Sequence[Any], extents: Sequence[Any]) -> te.Tensor:
        [source] = sources

        def position(*at: Any) -> Any:
            chosen = source(*at) if len(source.shape) else source()
            parts = [_wide(i) for i in at]
            parts[self.axis] = _normalise(chosen, extents[self.axis], self.wrap)
            return _flatten(parts, extents, valid=_valid(parts[self.axis], extents[self.axis]))

        return te.compute(box, position, name="linear_index")


@dataclass(frozen=True)
class LinearTuples:
    """One index for each of some axes, as places in the flattened data; -1 if one is bad.

    Attributes
    ----------
    axes : tuple of int
        The axes that are indexed. All positions of the others are addressed.
    rank : int
        Of the shape that the indices have in common; positions of other axes follow it.
    wrap : bool
        Whether negative indices count from the end.
    """

    axes: tuple[int, ...]
    rank: int
    wrap: bool

    def __call__(self, sources: Tensors, shape: Sequence[Any], extents: Sequence[Any]) -> te.Tensor:
        others = [axis for axis in range(len(extents)) if axis not in self.axes]

        def position(*at: Any) -> Any:
            parts: list[Any] = [None] * len(extents)
            valid: Any = tirx.const(True, "bool")
            for axis, source in zip(self.axes, sources, strict=True):
                parts[axis] = _normalise(source(*at[: self.rank]), extents[axis], self.wrap)
                valid = tirx.all(valid, _valid(parts[axis], extents[axis]))
            for axis, i in zip(others, at[self.rank :], strict=True):
                parts[axis] = _wide(i)
            return _flatten(parts, extents, valid)

        return te.compute(shape, position, name="linear_index")


def _wide(value: Any) -> Any:
    return tirx.Cast("int64", value)


def _normalise(index: Any, extent: Any, wrap: bool) -> Any:
    index = _wide(index)
    return tirx.Select(index < 0, index + extent, index) if wrap else index


def _valid(index: Any, extent: Any) -> Any:
    return tirx.all(index >= 0, index < extent)


def _flatten(parts: Sequence[Any], extents: Sequence[Any], valid: Any) -> Any:
    offset: Any = tirx.IntImm("int64", 0)
    for part, extent in zip(parts, extents, strict=True):
        offset = offset * extent + part
    return tirx.Select(valid, offset, tirx.IntImm("int64", -1))
