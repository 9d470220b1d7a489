"""Functions of tensor expressions that compute operands.

Each takes a list of the tensors that it reads, and then the shapes that it needs. Shapes are
arguments, so that symbolic sizes become parameters of the function. Two that compute the same
compare equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx, topi

from tvm_scatter.emit.wrapping import kept_apart
from tvm_scatter.ops.scatter_call import CopiedRange

from .joined_ranges import JoinedRange, reader, shifted

Tensors = Sequence[te.Tensor]


def signed(sources: Tensors) -> te.Tensor:
    """A uint64 index as int64. An index beyond int64 becomes the largest int64.

    Both are out of bounds for every extent.
    """
    [source] = sources
    most = tirx.const(int(np.iinfo("int64").max), "uint64")
    return te.compute(source.shape, lambda *at: tirx.Cast("int64", tirx.min(source(*at), most)))


def wide(sources: Tensors) -> te.Tensor:
    """An index as int64."""
    return topi.cast(sources[0], "int64")


@dataclass(frozen=True)
class Zeros:
    """A tensor of zeros, computed from no source."""

    dtype: str

    def __call__(self, _sources: Tensors, shape: Sequence[Any]) -> te.Tensor:
        return topi.full(shape, self.dtype, 0)


@dataclass(frozen=True)
class Broadcast:
    """A tensor, broadcast to a shape.

    TVM's own ``broadcast_to`` does not know which symbolic sizes a check has found to be equal.

    Attributes
    ----------
    of_one : tuple of bool
        For each dimension of the tensor, whether its size is one.
    """

    of_one: tuple[bool, ...]

    def __call__(self, sources: Tensors, shape: Sequence[Any]) -> te.Tensor:
        [source] = sources

        def element(*at: Any) -> Any:
            behind = at[len(at) - len(self.of_one) :]
            return source(*(0 if one else i for one, i in zip(self.of_one, behind, strict=True)))

        return te.compute(shape, element, name="broadcast_to", tag="broadcast")


def crop(sources: Tensors, shape: Sequence[Any]) -> te.Tensor:
    """The part of a tensor of the given shape that begins at its first element."""
    [source] = sources
    return te.compute(shape, lambda *at: source(*at), name="crop")


@dataclass(frozen=True)
class Joined:
    """Ranges of several tensors, concatenated along an axis."""

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
    """The flat position in the data for each index of ``scatter_elements``; -1 for a bad index.

    Attributes
    ----------
    axis : int
        The axis that the index addresses. The other coordinates are the position of the index.
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
    """The flat positions in the data for the indices of ``index_put``; -1 if an index is bad.

    Attributes
    ----------
    axes : tuple of int
        The indexed axes. All positions of the other axes are addressed.
    rank : int
        The rank of the indices. In the result, the other axes follow these dimensions.
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
    return tirx.all(index >= 0, index < kept_apart(extent))


def _flatten(parts: Sequence[Any], extents: Sequence[Any], valid: Any) -> Any:
    offset: Any = tirx.IntImm("int64", 0)
    for part, extent in zip(parts, extents, strict=True):
        offset = offset * extent + part
    return tirx.Select(valid, offset, tirx.IntImm("int64", -1))
