"""Reductions and running sums, whose results have another type than their operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty, no_elements, number_of
from tvm_scatter.problem.reductions import HALVES

from .call import TorchCall
from .extremes import greatest_along


def running(operator: Callable[..., Any], call: TorchCall) -> Any:
    """``cumsum`` and ``cumprod``. TVM keeps small integers small, and cannot sum booleans."""
    data = call["self"]
    dtype = _total_type(call)
    if is_empty(data):
        # TVM divides by the size of the dimension.
        return call.emit(no_elements(relax.TensorType(shape_of(data), dtype)))
    if str(data.ty.dtype) == dtype:
        return None
    axis = call.axis(call["dim"], data.ty.ndim)
    return call.emit(operator(call.cast(data, dtype), axis, dtype))


def prod(call: TorchCall) -> Any:
    """``prod``, of all or along one dimension."""
    data = call.cast(call["self"], _total_type(call))
    dim = call.get("dim", None)
    axes = None if dim is None else [call.axis(dim, data.ty.ndim)]
    return _reduced(call, relax.op.prod, data, axes, call.get("keepdim", False))


def mean(call: TorchCall) -> Any:
    """``mean``. That of nothing is not a number; TVM divides by zero when it compiles."""
    dtype, dims, keepdim = _total_type(call), call.get("dim", None), call.get("keepdim", False)
    nothing = _of_nothing(call, dims, keepdim, dtype)
    if nothing is not None or not _is_empty_list(dims):
        return nothing
    return _reduced(call, relax.op.mean, call.cast(call["self"], dtype), None, keepdim)


def variance(call: TorchCall) -> Any:
    """``var``. That of nothing is not a number; TVM must know how many elements there are."""
    shape, axes = shape_of(call["self"]), _axes(call, call["dim"])
    nothing = _of_nothing(call, axes, call["keepdim"], str(call["self"].ty.dtype))
    known = all(isinstance(shape[axis], int) for axis in axes)
    if nothing is not None or (known and not _is_empty_list(call["dim"])):
        return nothing
    return _moments(call, axes)[0]


def vector_norm(call: TorchCall) -> Any:
    """``linalg_vector_norm``, of all elements where an empty list of dimensions says so.

    That of order 0 is how many elements are not zero. TVM takes powers for every order, and adds up
    16-bit floats as such, whose squares are soon infinite.
    """
    data, dtype, order = call["self"], call["dtype"], call["ord"]
    dtype = str(data.ty.dtype) if dtype is None else str(dtype).removeprefix("torch.")
    axes, keepdim = _axes(call, call["dim"]), call["keepdim"]
    if order == 0:
        zero = call.emit(relax.op.equal(data, relax.const(0, str(data.ty.dtype))))
        counted = call.cast(call.emit(relax.op.logical_not(zero)), dtype)
        return _reduced(call, relax.op.sum, counted, axes, keepdim)
    if math.isinf(order):
        sizes = call.emit(relax.op.abs(call.cast(data, dtype)))
        return greatest_along(call, sizes, axes, order > 0, keepdim)
    wide = "float32" if dtype in HALVES else dtype
    data = call.cast(call.cast(data, dtype), wide)
    if order == 2:
        squares = call.emit(relax.op.multiply(data, data))
        norm = call.emit(relax.op.sqrt(_reduced(call, relax.op.sum, squares, axes, keepdim)))
        return call.cast(norm, dtype)
    sizes = call.emit(relax.op.abs(data))
    if order == 1:
        return call.cast(_reduced(call, relax.op.sum, sizes, axes, keepdim), dtype)
    powers = call.emit(relax.op.power(sizes, call.scalar(order, wide)))
    total = _reduced(call, relax.op.sum, powers, axes, keepdim)
    return call.cast(call.emit(relax.op.power(total, call.scalar(1 / order, wide))), dtype)


def variance_and_mean(call: TorchCall) -> Any:
    """``var_mean``. PyTorch decomposes norms of layers, groups and batches into it."""
    axes = _axes(call, call["dim"])
    nothing = _of_nothing(call, axes, call["keepdim"], str(call["self"].ty.dtype))
    both = _moments(call, axes) if nothing is None else (nothing, nothing)
    return call.emit(relax.Tuple(both))


def _moments(call: TorchCall, axes: list[int]) -> tuple[Any, Any]:
    """The variance and the mean of some elements."""
    data = call["self"]
    correction = 1 if call["correction"] is None else call["correction"]
    mean = _reduced(call, relax.op.mean, data, axes, True)
    centred = call.emit(relax.op.subtract(data, mean))
    squares = call.emit(relax.op.multiply(centred, centred))
    total = _reduced(call, relax.op.sum, squares, axes, call["keepdim"])
    count = call.scalar(number_of([shape_of(data)[axis] for axis in axes]), str(data.ty.dtype))
    if correction:
        count = call.emit(relax.op.subtract(count, call.scalar(correction, str(data.ty.dtype))))
        count = call.emit(relax.op.maximum(count, call.scalar(0, str(data.ty.dtype))))
    variance = call.emit(relax.op.divide(total, count))
    if not call["keepdim"] and axes:
        mean = call.reshape(mean, shape_of(variance))
    return variance, mean


def _is_empty_list(dims: Any) -> bool:
    """Whether an empty list names the dimensions: all of them to PyTorch, and none to TVM."""
    return isinstance(dims, Sequence) and not dims


def _axes(call: TorchCall, dims: Any) -> list[int]:
    """The axes of dimensions, which are all if none are named."""
    rank = call["self"].ty.ndim
    dims = [dims] if isinstance(dims, int) else dims
    return [call.axis(dim, rank) for dim in dims or range(rank)]


def _of_nothing(call: TorchCall, dims: Any, keepdim: bool, dtype: str) -> Any:
    """The reduction of no elements, which is not a number; ``None`` if there are any."""
    shape, axes = shape_of(call["self"]), _axes(call, dims)
    if not axes or number_of([shape[axis] for axis in axes]) != 0:
        return None
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    if not keepdim:
        kept = [size for axis, size in enumerate(shape) if axis not in axes]
    if 0 in kept:
        return call.emit(no_elements(relax.TensorType(kept, dtype)))
    return call.full(kept, math.nan, dtype)


def _reduced(
    call: TorchCall, operator: Callable[..., Any], data: Any, axes: Any, keepdim: bool
) -> Any:
    """A reduction. That of a 0-d tensor is the tensor."""
    return data if data.ty.ndim == 0 else call.emit(operator(data, axes, keepdim))


def _total_type(call: TorchCall) -> str:
    """The type of sums and products: the one asked for, int64 of integers, else the data's."""
    asked, own = call["dtype"], str(call["self"].ty.dtype)
    if asked is not None:
        return str(asked).removeprefix("torch.")
    return "int64" if own.startswith(("int", "uint", "bool")) else own
