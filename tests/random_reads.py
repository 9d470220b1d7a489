"""Random reads by index, with what TVM fuses with them, and what they mean in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from tvm import relax

from tvm_scatter.ops import read_ops

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float16", "bfloat16", "float64", "bool", "int8", "uint8", "int32", "int64")
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64)
_MOST_ELEMENTS = 4096


class Drawn(NamedTuple):
    """An expression over arrays, and its value; whether all its sizes may be symbolic."""

    build: Callable[..., Any]
    arrays: tuple[Array, ...]
    expected: Array
    takes_symbols: bool


def numpy_dtype(dtype: str) -> Any:
    """NumPy's type of this name, or the one that ``ml_dtypes`` adds."""
    return getattr(ml_dtypes, dtype) if dtype == "bfloat16" else np.dtype(dtype)


def draw_read(seed: int, bad: bool = False) -> Drawn:
    """A read; where ``bad``, about one index of eight is out of bounds and reads a zero."""
    random = np.random.default_rng(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    shape = _shape(random, int(random.integers(1, 5)))
    data = random.integers(0, 2 if dtype == "bool" else 100, shape).astype(numpy_dtype(dtype))
    draw = (_take, _elements, _tuples, _axes)[int(random.integers(4))]
    read, indices, result = draw(random, data, bad)
    tail, after = _tail(random, dtype, result)

    def build(x: Any, *places: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return after(emit, read(emit, x, *places))

    return Drawn(build, (data, *indices), tail, draw in (_take, _elements))


def _shape(random: Any, rank: int, most: int = _MOST_ELEMENTS) -> tuple[int, ...]:
    while True:
        shape = tuple(int(size) for size in random.choice(SIZES, rank))
        if np.prod(shape) <= most:
            return shape


def _index(random: Any, shape: Any, extent: int, bad: bool) -> Array:
    """Indices that may count from the end; bad ones are far away or just outside."""
    index = random.integers(-extent, extent, shape)
    if bad:
        far = random.choice([extent, -extent - 1, 2**30, -(2**31)], shape)
        index = np.where(random.random(shape) < 0.125, far, index)
    return np.asarray(index, random.choice(["int32", "int64"]))


def _inside(index: Array, extent: int) -> Array:
    return (index >= -extent) & (index < extent)


def _take(random: Any, data: Array, bad: bool) -> Any:
    axis = int(random.integers(data.ndim))
    index = _index(random, _shape(random, int(random.integers(0, 3)), 64), data.shape[axis], bad)
    inside = _inside(index, data.shape[axis])
    result = np.take(data, np.where(inside, index, 0), axis)
    mask = inside.reshape(index.shape + (1,) * (data.ndim - axis - 1))
    zeroed = np.where(mask, result, np.zeros((), data.dtype))
    return lambda emit, x, i: emit(relax.op.take(x, i, axis)), [index], zeroed


def _elements(random: Any, data: Array, bad: bool) -> Any:
    axis = int(random.integers(data.ndim))
    shape = [int(random.integers(1, size + 1)) for size in data.shape]
    shape[axis] = int(random.choice(SIZES))
    index = _index(random, shape, data.shape[axis], bad)
    inside = _inside(index, data.shape[axis])
    box = tuple(slice(None) if d == axis else slice(size) for d, size in enumerate(shape))
    result = np.take_along_axis(data[box], np.where(inside, index, 0).astype("int64"), axis)
    zeroed = np.where(inside, result, np.zeros((), data.dtype))

    def read(emit: Any, x: Any, i: Any) -> Any:
        return emit(read_ops.gather_elements(x, i, axis, wrap_negative=True))

    return read, [index], zeroed


def _tuples(random: Any, data: Array, bad: bool) -> Any:
    components = int(random.integers(1, data.ndim + 1))
    shape = _shape(random, int(random.integers(1, 3)), 64)
    parts = [_index(random, shape, size, bad).astype("int64") for size in data.shape[:components]]
    inside = np.all([_inside(p, s) for p, s in zip(parts, data.shape, strict=False)], axis=0)
    result = data[tuple(np.where(inside, part, 0) for part in parts)]
    mask = inside.reshape(shape + (1,) * (data.ndim - components))
    zeroed = np.where(mask, result, np.zeros((), data.dtype))
    return lambda emit, x, i: emit(relax.op.gather_nd(x, i)), [np.stack(parts, -1)], zeroed


def _axes(random: Any, data: Array, bad: bool) -> Any:
    count = int(random.integers(1, data.ndim + 1))
    axes = sorted(int(axis) for axis in random.choice(data.ndim, count, replace=False))
    shape = _shape(random, int(random.integers(1, 3)), 64)
    parts = [_index(random, shape, data.shape[axis], bad) for axis in axes]
    inside = np.all([_inside(p, data.shape[a]) for p, a in zip(parts, axes, strict=True)], axis=0)

    def at(source: Array) -> Array:
        places: list[Any] = [slice(None)] * data.ndim
        for axis, part in zip(axes, parts, strict=True):
            places[axis] = np.where(inside, part, 0)
        return source[tuple(places)]

    first = axes[0] if axes == list(range(axes[0], axes[0] + count)) else 0
    mask = inside.reshape((1,) * first + inside.shape + (1,) * (data.ndim - count - first))
    zeroed = np.where(mask, at(data), np.zeros((), data.dtype))
    return lambda emit, x, *i: emit(read_ops.index(x, i, axes)), parts, zeroed


def _tail(random: Any, dtype: str, result: Array) -> tuple[Array, Callable[..., Any]]:
    """What follows the read, computed exactly in every type."""
    kind = int(random.integers(6))
    if kind == 1 and result.ndim > 1:
        order = [int(axis) for axis in random.permutation(result.ndim)]
        return result.transpose(order), lambda emit, r: emit(relax.op.permute_dims(r, order))
    if kind == 2 and dtype != "bool":
        expected = result.astype("float32")
        return expected * expected, lambda emit, r: _squared(emit, r)
    if kind == 3 and dtype != "bool" and result.ndim:
        doubled = np.concatenate([result, result + result], -1)
        return doubled, lambda emit, r: emit(relax.op.concat([r, emit(relax.op.add(r, r))], -1))
    if kind == 4 and dtype != "bool":
        flat = (result + result).reshape(-1)
        return flat, lambda emit, r: emit(relax.op.flatten(emit(relax.op.add(r, r))))
    if kind == 5 and dtype != "bool":
        compared = result > np.asarray(40, result.dtype)
        return compared, lambda emit, r: emit(relax.op.greater(r, relax.const(40, dtype)))
    return result, lambda emit, r: r


def _squared(emit: Any, read: Any) -> Any:
    wide = emit(relax.op.astype(read, "float32"))
    return emit(relax.op.multiply(wide, wide))
