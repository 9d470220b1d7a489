"""Layer norms of types that TVM does not compile: bfloat16 and float64."""

from __future__ import annotations

from typing import Any

from tvm import relax

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
    for name, operator in (("weight", relax.op.multiply), ("bias", relax.op.add)):
        if call[name] is not None:
            result = call.emit(operator(result, call.cast(call[name], wide)))
    result = call.cast(result, dtype)
    return call.emit(relax.Tuple([result])) if call.name == "native_layer_norm" else result
