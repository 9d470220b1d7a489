"""A grid of scatters over shapes, axes, data types and reductions, each with PyTorch's answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd
from tvm_scatter.problem.reductions import numpy_dtype

Shape = tuple[int, ...]
DTYPES = ("float32", "int64", "bfloat16", "uint8", "float16", "bool", "int32", "float64", "int8")
REDUCTIONS = ("sum", "update", "amax", "prod", "mean", "amin")
_INDEX_DTYPES = ("int64", "int32")


@dataclass(frozen=True)
class Place:
    """Where a scatter writes: the shapes of its operands, and along which axes.

    Attributes
    ----------
    form : str
        ``elements``, ``put`` (one index tensor for each of ``axes``) or ``nd``.
    """

    form: str
    data: Shape
    index: Shape
    updates: Shape
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """One scatter of the grid."""

    place: Place
    dtype: str
    reduction: str
    include_self: bool
    seed: int

    @property
    def index_dtype(self) -> str:
        """Index types take turns."""
        return _INDEX_DTYPES[self.seed % len(_INDEX_DTYPES)]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Data, indices and updates: negative and repeated indices where that is allowed."""
        place = self.place
        generator = np.random.default_rng(self.seed)
        rank = len(place.data)
        axes = [axis % rank for axis in place.axes]
        if place.form == "elements":
            indices = [self._lines(generator, axes[0])]
        else:
            shape = place.index[:-1] if place.form == "nd" else place.index
            count, places = int(np.prod(shape)), int(np.prod([place.data[a] for a in axes]))
            linear = generator.integers(0, max(places, 1), count)
            if self.reduction == "update":
                linear = generator.permutation(places)[:count]
            columns = np.unravel_index(linear, [max(place.data[a], 1) for a in axes])
            indices = [
                np.where(generator.random(count) < 0.4, column - place.data[a], column)
                for column, a in zip(columns, axes, strict=True)
            ]
            indices = [index.reshape(shape) for index in indices]
            if place.form == "nd":
                indices = [np.stack(indices, axis=-1)]
        indices = [index.astype(self.index_dtype) for index in indices]
        return [
            self._values(generator, place.data),
            *indices,
            self._values(generator, place.updates),
        ]

    def _lines(self, generator: np.random.Generator, axis: int) -> np.ndarray[Any, Any]:
        extent, shape = self.place.data[axis], self.place.index
        if self.reduction != "update":
            return generator.integers(0, max(extent, 1), shape)
        lines = [extent if d == axis else n for d, n in enumerate(shape)]
        return generator.random(lines).argsort(axis=axis).take(range(shape[axis]), axis=axis)

    def _values(self, generator: np.random.Generator, shape: Shape) -> np.ndarray[Any, Any]:
        """Numbers whose sums and products every type holds exactly."""
        if self.dtype == "bool":
            return np.asarray(generator.random(shape) < 0.5)
        if self.reduction == "prod":
            values = generator.choice([1, 1, 1, 2], shape)
        else:
            values = generator.integers(0 if self.dtype == "uint8" else -3, 4, shape)
        return np.asarray(values, numpy_dtype(self.dtype))

    def build(self, data: Any, *rest: Any) -> Any:
        """The operator of this package."""
        *indices, updates = rest
        place = self.place
        options = {"reduction": self.reduction, "include_self": self.include_self}
        unique = self.reduction == "update"
        if place.form == "elements":
            axis = place.axes[0]
            return scatter_elements(data, indices[0], updates, axis, unique=unique, **options)
        if place.form == "nd":
            return scatter_nd(data, indices[0], updates, unique=unique, **options)
        return index_put(data, indices, updates, place.axes, unique=unique, **options)

    def expected(self) -> np.ndarray[Any, Any] | None:
        """What PyTorch computes on a CPU; ``None`` where it has no such operator."""
        data, *indices, updates = map(_to_torch, self.arrays())
        indices = [index.long() for index in indices]
        try:
            return _to_numpy(self._torch(data, indices, updates))
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            return None

    def _torch(self, data: Any, indices: list[Any], updates: Any) -> Any:
        place = self.place
        if place.form == "elements":
            if self.reduction == "update":
                return data.scatter(place.axes[0], indices[0], updates)
            return data.scatter_reduce(
                place.axes[0], indices[0], updates, self.reduction, include_self=self.include_self
            )
        if place.form == "nd":
            indices = list(indices[0].unbind(-1))
        where: list[Any] = [slice(None)] * data.ndim
        for axis, index in zip(place.axes, indices, strict=True):
            where[axis] = index
        # What is not indexed is an index of its own, for operators without slices.
        rows = torch.arange(data.numel()).reshape(data.shape)[tuple(where)].reshape(-1)
        flat, values = data.reshape(-1), updates.expand(data[tuple(where)].shape).reshape(-1)
        if self.reduction == "update":
            return flat.scatter(0, rows, values).reshape(data.shape)
        result = flat.scatter_reduce(
            0, rows, values, self.reduction, include_self=self.include_self
        )
        return result.reshape(data.shape)


def places() -> Iterator[Place]:
    """Every rank from 1 to 4, every axis, boxes of every kind, and empty operands."""
    for rank in (1, 2, 3, 4):
        data = (5, 4, 3, 6)[:rank]
        for axis in range(-rank, rank):
            yield Place("elements", data, data, data, (axis,))
            smaller = tuple(n - 1 for n in data)
            yield Place("elements", data, smaller, tuple(n + 1 for n in smaller), (axis,))
            longer = tuple(9 if d == axis % rank else n for d, n in enumerate(data))
            yield Place("elements", data, longer, longer, (axis,))
        for axis in range(rank):
            empty = tuple(0 if d == axis else n for d, n in enumerate(data))
            yield Place("elements", data, empty, empty, (0,))
            yield Place("elements", data, empty, data, (rank - 1,))
            yield Place("elements", empty, empty, empty, (axis,))
            rows = (*data[:axis], 7, *data[axis + 1 :])
            yield Place("put", data, (7,), rows, (axis,))
            yield Place("put", data, (7,), (), (axis,))
        for components in range(1, rank + 1):
            shape = (2, 3)
            behind = data[components:]
            yield Place(
                "nd", data, (*shape, components), (*shape, *behind), tuple(range(components))
            )
            yield Place("put", data, shape, (*shape, *behind), tuple(range(components)))
    for data in ((1,), (2,), (1, 1), (2, 1), (1, 2), (2, 2), (2, 1, 2), (1, 2, 1)):
        rank = len(data)
        for count in (0, 1, 2):
            for axis in range(rank):
                line = (*data[:axis], count, *data[axis + 1 :])
                yield Place("elements", data, line, line, (axis,))
                yield Place("put", data, (count,), line, (axis,))
            one = (1,) * rank
            yield Place("elements", data, one, one, (rank - 1,))
            yield Place("nd", data, (count, rank), (count,), tuple(range(rank)))
            yield Place("put", data, (count,), (), tuple(range(rank)))
    yield Place("put", (5, 4, 3), (7,), (7, 4), (0, 2))
    yield Place("put", (2, 5, 4, 3), (6,), (2, 6, 3), (1, 2))
    yield Place("put", (300, 40), (500,), (500, 40), (0,))
    yield Place("elements", (3000,), (2000,), (2000,), (0,))
    yield Place("elements", (40, 300), (40, 250), (40, 250), (1,))


def points(rounds: int) -> list[Point]:
    """The places, each with ``rounds`` kinds of values and reductions, all kinds in turn."""
    kinds = [
        (dtype, reduction, include_self)
        for reduction in REDUCTIONS
        for dtype in DTYPES
        for include_self in (True, False)
        if include_self or reduction != "update"
    ]
    found, turn = [], 0
    for _ in range(rounds):
        for place in places():
            # Steps that share no factor with the number of kinds meet all of them.
            dtype, reduction, include_self = kinds[turn * 37 % len(kinds)]
            turn += 1
            if reduction == "update" and not _has_room(place):
                continue
            found.append(Point(place, dtype, reduction, include_self, seed=turn))
    return found


def _has_room(place: Place) -> bool:
    """Whether plain updates can all have places of their own."""
    extents = [place.data[axis] for axis in place.axes]
    if place.form == "elements":
        return place.index[place.axes[0]] <= extents[0]
    count = place.index[:-1] if place.form == "nd" else place.index
    return int(np.prod(count)) <= int(np.prod(extents))


def _to_torch(array: Any) -> Any:
    array = np.asarray(array)
    if array.dtype == numpy_dtype("bfloat16"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return tensor.numpy()
