"""Averages and maxima of windows, where TVM's converters are wrong."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from .arithmetic import is_integral
from .call import TorchCall
from .each_axis import of_each_axis

_AVERAGES = (relax.op.nn.avg_pool1d, relax.op.nn.avg_pool2d, relax.op.nn.avg_pool3d)
_MAXIMA = {2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}


def avg_pool(call: TorchCall) -> Any:
    """``avg_pool`` with a divisor of its own, which TVM's converters leave out."""
    divisor = call.get("divisor_override", None)
    if divisor is None:
        return None
    axes = int(call.name.partition("avg_pool")[2][0])
    data, windows = call["self"], of_each_axis(call["kernel_size"], axes)
    pooled = _AVERAGES[axes - 1](
        _batched(call, data, axes),
        windows,
        of_each_axis(call["stride"] or windows, axes),
        of_each_axis(call["padding"], axes),
        ceil_mode=call["ceil_mode"],
        # Then TVM divides by the size of a whole window everywhere.
        count_include_pad=True,
    )
    scale = relax.const(prod(windows) / divisor, str(data.ty.dtype))
    return _unbatched(call, call.emit(relax.op.multiply(pooled, scale)), data)


def max_pooled(call: TorchCall) -> Any:
    """The values of max pooling.

    TVM's maximum leaves out what is not a number, and is at least the least finite number.
    """
    axes = 3 if "pool3d" in call.name else 2
    data = call["self"]
    dtype = str(data.ty.dtype)
    if is_integral(dtype):
        return _unbatched(call, _pooled(call, _batched(call, data, axes), axes), data)
    batched = _batched(call, data, axes)
    # Nothing, a number, no number.
    infinite = relax.op.equal(batched, relax.const(float("-inf"), dtype))
    ranks = [relax.const(rank, dtype) for rank in (0, 1, 2)]
    rank = relax.op.where(infinite, ranks[0], ranks[1])
    rank = call.emit(relax.op.where(relax.op.isnan(batched), ranks[2], rank))
    greatest = _pooled(call, rank, axes)
    found = relax.op.where(
        call.emit(relax.op.equal(greatest, ranks[0])),
        relax.const(float("-inf"), dtype),
        _pooled(call, batched, axes),
    )
    unknown = call.emit(relax.op.equal(greatest, ranks[2]))
    result = relax.op.where(unknown, relax.const(float("nan"), dtype), call.emit(found))
    return _unbatched(call, call.emit(result), data)


def _pooled(call: TorchCall, data: Any, axes: int) -> Any:
    windows = of_each_axis(call["kernel_size"], axes)
    numbers = (call["stride"] or windows, call["padding"], call["dilation"])
    parts = (of_each_axis(each, axes) for each in numbers)
    return call.emit(_MAXIMA[axes](data, windows, *parts, ceil_mode=call["ceil_mode"]))


def _batched(call: TorchCall, data: Any, axes: int) -> Any:
    if data.ty.ndim == axes + 2:
        return data
    return call.emit(relax.op.expand_dims(data, 0))


def _unbatched(call: TorchCall, result: Any, data: Any) -> Any:
    if result.ty.ndim == data.ty.ndim:
        return result
    return call.emit(relax.op.squeeze(result, [0]))
