"""The function that finds the greatest element of each window, and where that is.

It reads a window where it lies in the data. No window is ever written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.problem.reductions import FLOATS, HALVES, item_bytes
from tvm_scatter.problem.signature import Dim

_PLACE = "int64"
#: TVM schedules the loops, but is to compute nothing else in them.
_ATTRIBUTES = {"op_pattern": 8, "tirx.noalias": True}


@dataclass(frozen=True)
class Windows:
    """The windows along one axis.

    Attributes
    ----------
    size, stride, dilation : int
        The elements of a window, and the steps from window to window and from element to element.
    before : int
        The padding in front of the data.
    reach_beyond : bool
        Whether a window may have elements behind the last one of the data.
    have_data : bool
        Whether the elements of a window are neighbours, and some of them are certainly of the data.
    """

    size: int
    stride: int
    dilation: int
    before: int
    reach_beyond: bool
    have_data: bool

    def place(self, window: Any, tap: Any, size: Any) -> Any:
        """The coordinate of an element of a window, of so many that the data has.

        In place of one outside it is the nearest one of the window, if there is any. So nothing
        has to be asked before it is read. To meet an element again changes nothing: it is not
        greater than itself, and the last "not a number" is still the last.
        """
        place = window * self.stride - self.before + tap * self.dilation
        if self.have_data and self.reach_beyond:
            place = tirx.min(place, size - 1)
        return tirx.max(place, 0) if self.have_data and self.before else place

    def inside(self, place: Any, size: Any) -> list[Any]:
        """The conditions for a coordinate to be one of the data, where that is to be asked."""
        if self.have_data:
            return []
        first = [place >= 0] if self.before else []
        return [*first, place < size] if self.reach_beyond else first

    def first(self, window: Any) -> Any:
        """The coordinate of a window's first element that is not in front of the data."""
        corner = window * self.stride - self.before
        return tirx.max(corner, tirx.floormod(corner, self.dilation)) if self.before else corner


@dataclass(frozen=True)
class Pooling:
    """What is pooled.

    Attributes
    ----------
    dtype : str
        The type of the data.
    shape : tuple of (int or str)
        The shape of the data; sizes that only the run time knows have names.
    counts : tuple of (int or str)
        How many windows there are along each of the last axes.
    windows : sequence of Windows
        The windows along each of these axes.
    across_planes : bool
        Whether positions count all elements of the data, not only those of their plane.
    """

    dtype: str
    shape: tuple[Dim, ...]
    counts: tuple[Dim, ...]
    windows: Sequence[Windows]
    across_planes: bool

    @property
    def pooled(self) -> tuple[Dim, ...]:
        """The shape of the results."""
        return (*self.shape[: -len(self.counts)], *self.counts)


def pooling_function(pooling: Pooling) -> tirx.PrimFunc:
    """The function of the data, of the greatest elements and of their positions."""
    names = {
        dim: tirx.Var(dim, _PLACE)
        for dim in (*pooling.shape, *pooling.counts)
        if isinstance(dim, str)
    }
    shapes = [
        [names[dim] if isinstance(dim, str) else tirx.IntImm(_PLACE, dim) for dim in shape]
        for shape in (pooling.shape, pooling.pooled)
    ]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr(_ATTRIBUTES)
        declared = (
            ("data", shapes[0], pooling.dtype),
            ("values", shapes[1], pooling.dtype),
            ("positions", shapes[1], _PLACE),
        )
        handles = [T.arg(name, T.handle()) for name, _, _ in declared]
        # A view of a tensor need not have the alignment to 64 bytes that TVM assumes.
        buffers = [
            T.match_buffer(handle, shape, dtype, align=item_bytes(dtype))
            for handle, (_, shape, dtype) in zip(handles, declared, strict=True)
        ]
        with T.grid(*shapes[1]) as loops, T.sblock("max_pool"):
            at = [T.axis.spatial(*each) for each in zip(shapes[1], loops, strict=True)]
            _Window(pooling, at, *buffers).emit()
    return builder.get()


class _Window:
    """One window: the element of the results at some place."""

    def __init__(
        self, pooling: Pooling, at: Sequence[Any], data: Any, values: Any, positions: Any
    ) -> None:
        self.pooling, self.data, self.results, self.at = pooling, data, (values, positions), at
        outer = len(at) - len(pooling.windows)
        self.plane, self.sizes = list(at[:outer]), data.shape[outer:]
        self.windows = list(zip(pooling.windows, at[outer:], strict=True))
        # Every target compares single precision, and can tell what is not a number in it.
        self.wide = "float32" if pooling.dtype in HALVES else pooling.dtype

    def emit(self) -> None:
        """Find the greatest element and its position, and write both.

        The elements come in their order, as PyTorch takes them. One takes the place of another if
        it is greater, and if it is not a number.
        """
        T.reads(self._plane())
        T.writes(*(each[tuple(self.at)] for each in self.results))
        types = (self.wide, _PLACE, self.wide)
        best, position, other = (T.sblock_alloc_buffer((1,), x, scope="local") for x in types)
        T.buffer_store(best, self._lowest(), [0])
        first = [each.first(at) for each, at in self.windows]
        T.buffer_store(position, self._position(first), [0])
        with T.grid(*(tirx.IntImm(_PLACE, each.size) for each in self.pooling.windows)) as taps:
            place = self._place(taps)
            # TVM converts what it reads of bfloat16 where it is stored, and not where it is bound.
            T.buffer_store(other, self._element(place), [0])
            self._take(T.bind(other[0]), place, best, position)
        for result, found in zip(self.results, (best, position), strict=True):
            T.buffer_store(result, found[0].astype(str(result.dtype)), self.at)

    def _take(self, value: Any, place: Sequence[Any], best: Any, position: Any) -> None:
        """Take an element if it is better than those before it."""
        # TVM takes a choice between loads for a branch. LLVM makes no vectors of branches.
        known, found = T.bind(best[0]), T.bind(position[0])
        better = value > known
        if self.pooling.dtype in FLOATS:
            better = tirx.any(better, tirx.isnan(value))
        T.buffer_store(best, tirx.Select(better, value, known), [0])
        T.buffer_store(position, tirx.Select(better, self._position(place), found), [0])

    def _place(self, taps: Sequence[Any]) -> list[Any]:
        """The coordinates of an element of the window."""
        return [
            each.place(at, tap, size)
            for (each, at), tap, size in zip(self.windows, taps, self.sizes, strict=True)
        ]

    def _plane(self) -> Any:
        """The plane that the window is in."""
        region = (*self.plane, *(slice(0, size) for size in self.sizes))
        return self.data[region]

    def _element(self, place: Sequence[Any]) -> Any:
        """The element at a place, the lowest one outside of the data."""
        inside = [
            condition
            for (each, _), at, size in zip(self.windows, place, self.sizes, strict=True)
            for condition in each.inside(at, size)
        ]
        indices = (*self.plane, *place)
        element = self.data[indices].astype(self.wide)
        return tirx.if_then_else(tirx.all(*inside), element, self._lowest()) if inside else element

    def _lowest(self) -> Any:
        if self.pooling.dtype in FLOATS:
            return tirx.const(float("-inf"), self.wide)
        return tirx.min_value(self.wide)

    def _position(self, place: Sequence[Any]) -> Any:
        """The position of an element among those that positions count."""
        position: Any = tirx.IntImm(_PLACE, 0)
        outer = self.plane if self.pooling.across_planes else []
        place = [*outer, *place]
        for at, size in zip(place, self.data.shape[-len(place) :], strict=True):
            position = position * size + at
        return position
