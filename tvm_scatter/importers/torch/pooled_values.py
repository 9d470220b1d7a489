"""Averages and maxima of windows, where TVM's converters are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, te

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.problem.sizes import as_expression

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
    windows, average = of_each_axis(call["kernel_size"], axes), _AVERAGES[axes]
    # Then TVM divides by the size of a whole window everywhere, but not behind the padding.
    pooled = _pooled(call, average, data, count_include_pad=True)
    if call["ceil_mode"]:
        whole = _with_last_windows(call, data, windows)
        more = _pooled(
            call, average, whole, padding=[0] * axes, ceil_mode=False, count_include_pad=True
        )
        pooled = _first_of(call, more, shape_of(pooled))
    scale = prod(windows) / divisor
    return call.emit(relax.op.multiply(pooled, relax.const(scale, str(data.ty.dtype))))


def _with_last_windows(call: TorchCall, data: Any, windows: list[int]) -> Any:
    """Data with zeros around it, so many that windows which reach beyond the padding are whole."""
    axes = len(windows)
    strides = of_each_axis(call["stride"] or windows, axes)
    padding = of_each_axis(call["padding"], axes)
    widths = [0, 0] * (data.ty.ndim - axes)
    for before, stride in zip(padding, strides, strict=True):
        widths += [before, before + stride - 1]
    return call.emit(relax.op.nn.pad(data, widths))


def _first_of(call: TorchCall, data: Any, shape: Sequence[Any]) -> Any:
    """The first elements along each axis, as many as a shape says."""

    def first(data: te.Tensor, shape: Any) -> te.Tensor:
        return te.compute(shape, lambda *at: data(*at), name="first")

    return call.compute(first, data, list(map(as_expression, shape)), name="first")


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
            **{"padding": of_each_axis(call["padding"], axes), "ceil_mode": call["ceil_mode"]}
            | more,
        )
    )
    return call.emit(relax.op.squeeze(result, [0])) if one else result
