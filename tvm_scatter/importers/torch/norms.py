"""Norms of layers, batches and images, of types and sizes that TVM does not compile."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of

from .call import TorchCall, constant
from .elementwise import sum_type


def layer_norm(call: TorchCall) -> Any:
    """``layer_norm`` and ``native_layer_norm``, of which only the normalized tensor is read.

    TVM makes a weight and a bias of its own where there are none, of a size that it must know.
    """
    dtype, sizes = str(call["input"].ty.dtype), call["normalized_shape"]
    given = call["weight"] is not None and call["bias"] is not None
    known = given or all(isinstance(size, int) for size in sizes)
    if known and dtype not in ("bfloat16", "float64"):
        return None
    rank = call["input"].ty.ndim
    axes = list(range(rank - len(sizes), rank))
    result = _normalized(call, axes, shape_of(call["input"])[axes[0] :])
    return call.emit(relax.Tuple([result])) if call.name == "native_layer_norm" else result


def instance_norm(call: TorchCall) -> Any:
    """``_native_batch_norm_legit.no_stats``, of which only the normalized tensor is read.

    PyTorch makes each channel of an image one of the batch's, so many that TVM may not know.
    """
    channels = shape_of(call["input"])[1]
    if isinstance(channels, int) and str(call["input"].ty.dtype) == "float32":
        return None
    rank = call["input"].ty.ndim
    axes = [0, *range(2, rank)]
    result = _normalized(call, axes, (channels, *(1 for _ in range(rank - 2))))
    return call.emit(relax.Tuple([result]))


def batch_norm(call: TorchCall) -> Any:
    """``_native_batch_norm_legit_no_training`` of halves, which TVM makes single ones.

    And of images that PyTorch makes channels of, so many that TVM may not know.
    """
    dtype = str(call["input"].ty.dtype)
    known = isinstance(shape_of(call["input"])[1], int)
    if known and dtype not in ("float16", "bfloat16"):
        return None
    wide = sum_type(dtype)
    data = call.cast(call["input"], wide)
    channels = (shape_of(data)[1], *(1 for _ in range(data.ty.ndim - 2)))
    mean, variance = (
        call.reshape(call.cast(call[name], wide), channels)
        for name in ("running_mean", "running_var")
    )
    deviation = call.emit(relax.op.sqrt(relax.op.add(variance, constant(call["eps"], wide))))
    centred = call.emit(relax.op.subtract(data, mean))
    result = _scaled(call, call.emit(relax.op.divide(centred, deviation)), channels, wide)
    return call.emit(relax.Tuple([call.cast(result, dtype)]))


def _normalized(call: TorchCall, axes: list[int], shape: Any) -> Any:
    """The input of mean 0 and variance 1 along axes, times a weight and plus a bias of a shape."""
    dtype = str(call["input"].ty.dtype)
    wide = sum_type(dtype)
    data = call.cast(call["input"], wide)
    mean = call.emit(relax.op.mean(data, axes, True))
    centred = call.emit(relax.op.subtract(data, mean))
    squares = call.emit(relax.op.multiply(centred, centred))
    variance = call.emit(relax.op.mean(squares, axes, True))
    shifted = call.emit(relax.op.add(variance, constant(call["eps"], wide)))
    result = call.emit(relax.op.divide(centred, call.emit(relax.op.sqrt(shifted))))
    return call.cast(_scaled(call, result, shape, wide), dtype)


def _scaled(call: TorchCall, data: Any, shape: Any, dtype: str) -> Any:
    """The data times the weight plus the bias, if there are any, both in a shape."""
    for name, operator in (("weight", relax.op.multiply), ("bias", relax.op.add)):
        if call[name] is not None:
            factor = call.reshape(call.cast(call[name], dtype), shape)
            data = call.emit(operator(data, factor))
    return data
