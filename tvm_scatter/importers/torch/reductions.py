"""Reductions and running sums, whose results have another type than their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import number_of, shape_of
from tvm_scatter.ops.shapes import is_empty, no_elements

from .call import TorchCall


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


def variance_and_mean(call: TorchCall) -> Any:
    """``var_mean``. PyTorch decomposes norms of layers, groups and batches into it."""
    data = call["self"]
    axes = [call.axis(dim, data.ty.ndim) for dim in call["dim"] or range(data.ty.ndim)]
    correction = 1 if call["correction"] is None else call["correction"]
    mean = _reduced(call, relax.op.mean, data, axes, True)
    centred = call.emit(relax.op.subtract(data, mean))
    squares = call.emit(relax.op.multiply(centred, centred))
    total = _reduced(call, relax.op.sum, squares, axes, call["keepdim"])
    count = call.scalar(number_of([shape_of(data)[axis] for axis in axes]), str(data.ty.dtype))
    if correction:
        count = call.emit(relax.op.subtract(count, call.scalar(correction, str(data.ty.dtype))))
    variance = call.emit(relax.op.divide(total, count))
    if not call["keepdim"] and axes:
        mean = call.emit(relax.op.squeeze(mean, axes))
    return call.emit(relax.Tuple([variance, mean]))


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
