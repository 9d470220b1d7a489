"""Activations, and gradients of them, that PyTorch decomposes nowhere when it exports."""

from __future__ import annotations

from typing import Any

from tvm import relax

from .call import TorchCall, constant
from .scaling import times


def silu_backward(call: TorchCall) -> Any:
    """``silu_backward``: ``g * s * (1 + x * (1 - s))`` with ``s = sigmoid(x)``."""
    gradient, data = call["grad_output"], call["self"]
    sigmoid = call.emit(relax.op.sigmoid(data))
    return _product(call, gradient, sigmoid, _one_plus(call, data, _one_minus(call, sigmoid)))


def mish_backward(call: TorchCall) -> Any:
    """``mish_backward``: ``g * (t + x * s * (1 - t * t))`` with ``t = tanh(softplus(x))``."""
    gradient, data = call["grad_output"], call["self"]
    zero = constant(0, str(data.ty.dtype))
    softplus = call.emit(relax.op.log_add_exp(data, zero))
    tanh = call.emit(relax.op.tanh(softplus))
    sigmoid = call.emit(relax.op.sigmoid(data))
    slope = _product(call, data, sigmoid, _one_minus(call, _product(call, tanh, tanh)))
    return _product(call, gradient, call.emit(relax.op.add(tanh, slope)))


def leaky_relu(call: TorchCall) -> Any:
    """``leaky_relu``. TVM takes the product with a slope of zero for zero, also of infinity."""
    slope = call["negative_slope"]
    if slope == 0:
        return _with_slope(call, slope)
    return call.emit(relax.op.nn.leakyrelu(call["self"], slope))


def rrelu(call: TorchCall) -> Any:
    """``rrelu`` outside of training, where the slope of negative numbers is the middle one."""
    result = _with_slope(call, (call["lower"] + call["upper"]) / 2)
    if "functional" in call.name:
        return call.emit(relax.Tuple([result, call["noise"]]))
    return result


def _with_slope(call: TorchCall, slope: float) -> Any:
    data = call["self"]
    zero = constant(0, str(data.ty.dtype))
    positive = call.emit(relax.op.greater(data, zero))
    return call.emit(relax.op.where(positive, data, times(call, data, slope)))


def _product(call: TorchCall, first: Any, *others: Any) -> Any:
    for other in others:
        first = call.emit(relax.op.multiply(first, other))
    return first


def _one_minus(call: TorchCall, value: Any) -> Any:
    return call.emit(relax.op.subtract(constant(1, str(value.ty.dtype)), value))


def _one_plus(call: TorchCall, left: Any, right: Any) -> Any:
    product = _product(call, left, right)
    return call.emit(relax.op.add(constant(1, str(product.ty.dtype)), product))
