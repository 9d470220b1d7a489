"""Averages and maxima of windows, where TVM's converters are wrong."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import relax

from .call import TorchCall
from .each_axis import of_each_axis, pooled_axes
from .ordering import keys, values_of

Pooling = Callable[..., Any]

_AVERAGES = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
_MAXIMA = {2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}


def avg_pool(call: TorchCall) -> Any:
    """``avg_pool`` with a divisor of its own, which TVM's converters leave out."""
    divisor = call.get("divisor_override", None)
    if divisor is None:
        return None
    data, axes = call["self"], pooled_axes(call)
    # Then TVM divides by the size of a whole window everywhere.
    pooled = _pooled(call, _AVERAGES[axes], data, count_include_pad=True)
    scale = prod(of_each_axis(call["kernel_size"], axes)) / divisor
    return call.emit(relax.op.multiply(pooled, relax.const(scale, str(data.ty.dtype))))


def max_pooled(call: TorchCall) -> Any:
    """The values of max pooling, found as integers in the same order.

    TVM's maximum of floats leaves out what is no number, and is at least the least finite one.
    """
    data, axes = call["self"], pooled_axes(call)
    dilation = of_each_axis(call["dilation"], axes)
    greatest = _pooled(call, _MAXIMA[axes], keys(call, data), dilation=dilation)
    return values_of(call, greatest, str(data.ty.dtype))


def _pooled(call: TorchCall, pooling: Pooling, data: Any, **more: Any) -> Any:
    """The result of one of TVM's operators, which want a batch."""
    axes = pooled_axes(call)
    windows = of_each_axis(call["kernel_size"], axes)
    one = data.ty.ndim == axes + 1
    result = call.emit(
        pooling(
            call.emit(relax.op.expand_dims(data, 0)) if one else data,
            windows,
            of_each_axis(call["stride"] or windows, axes),
            padding=of_each_axis(call["padding"], axes),
            ceil_mode=call["ceil_mode"],
            **more,
        )
    )
    return call.emit(relax.op.squeeze(result, [0])) if one else result
