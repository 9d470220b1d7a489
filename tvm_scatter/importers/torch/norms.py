"""Norms of layers and batches, of types that TVM does not compile."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of

from .call import TorchCall, constant
from .elementwise import sum_type


def layer_norm(call: TorchCall) -> Any:
    """``layer_norm`` and ``native_layer_norm``, of which only the normalized tensor is read."""
    dtype = str(call["input"].ty.dtype)
    if dtype not in ("bfloat16", "float64"):
        return None
    wide = sum_type(dtype)
    data = call.cast(call["input"], wide)
    axes = [axis - len(call["normalized_shape"]) for axis in range(len(call["normalized_shape"]))]
    mean = call.emit(relax.op.mean(data, axes, True))
    centred = call.emit(relax.op.subtract(data, mean))
    squares = call.emit(relax.op.multiply(centred, centred))
    variance = call.emit(relax.op.mean(squares, axes, True))
    shifted = call.emit(relax.op.add(variance, constant(call["eps"], wide)))
    result = call.emit(relax.op.divide(centred, call.emit(relax.op.sqrt(shifted))))
    result = _scaled(call, result, shape_of(data)[axes[0] :], wide)
    result = call.cast(result, dtype)
    return call.emit(relax.Tuple([result])) if call.name == "native_layer_norm" else result


def batch_norm(call: TorchCall) -> Any:
    """``_native_batch_norm_legit_no_training`` of halves, which TVM makes single ones."""
    dtype = str(call["input"].ty.dtype)
    if dtype not in ("float16", "bfloat16"):
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


def _scaled(call: TorchCall, data: Any, shape: Any, dtype: str) -> Any:
    """The data times the weight plus the bias, if there are any, both in a shape."""
    for name, operator in (("weight", relax.op.multiply), ("bias", relax.op.add)):
        if call[name] is not None:
            factor = call.reshape(call.cast(call[name], dtype), shape)
            data = call.emit(operator(data, factor))
    return data
