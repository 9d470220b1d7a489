"""Powers of integers, which TVM has no function for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from .call import TorchCall

#: How many bits of an exponent one function takes care of. More make expressions too deep.
_BITS = 8


def integer_power(call: TorchCall, base: Any, exponent: Any, dtype: str) -> Any:
    """A power of integers of type ``dtype``, which wraps.

    One with a negative exponent is 0, unless its base is 1 or -1. A negative number is refused.
    """
    if isinstance(exponent, int) and exponent < 0:
        raise call.error(f"integers cannot be raised to the negative number {exponent}.")
    bits = exponent.bit_length() if isinstance(exponent, int) else np.iinfo(dtype).bits
    tensors = [each for each in (base, exponent) if isinstance(each, relax.Expr)]
    shape = relax.ShapeExpr(call.broadcast(*tensors))
    base, exponent = (_full(call, each, shape, dtype) for each in (base, exponent))
    power, square = call.full(shape.values, 1, dtype), base
    for first in range(0, bits, _BITS):
        part = call.compute(_digit, exponent, first, name="digit")
        power = _apart(call, _times_power, power, square, part)
        if first + _BITS < bits:
            square = _apart(call, _squared, square)
    if dtype.startswith("int"):
        power = call.compute(_unless_negative, power, base, exponent, name="power")
    return power


def _full(call: TorchCall, value: Any, shape: Any, dtype: str) -> Any:
    tensor = call.cast(value, dtype) if isinstance(value, relax.Expr) else call.scalar(value, dtype)
    return call.compute(topi.broadcast_to, tensor, shape, name="broadcast")


def _apart(call: TorchCall, function: Callable[..., te.Tensor], *tensors: Any) -> Any:
    """A function of its own: a fused chain of them would be one expression again."""
    attributes = {"op_pattern": 8}
    return call.bb.emit_te(
        function, *tensors, primfunc_name_hint="power", primfunc_attrs=attributes
    )


def _elementwise(function: Callable[..., Any], *tensors: te.Tensor) -> te.Tensor:
    return te.compute(
        tensors[0].shape, lambda *at: function(*(each(*at) for each in tensors)), name="power"
    )


def _digit(exponent: te.Tensor, first: int) -> te.Tensor:
    """The bits of an exponent from ``first`` on."""

    def digit(value: Any) -> Any:
        mask = tirx.const(2**_BITS - 1 if value.ty.dtype != "int8" else -1, value.ty)
        return (value >> tirx.const(first, value.ty)) & mask

    return _elementwise(digit, exponent)


def _times_power(power: te.Tensor, base: te.Tensor, digit: te.Tensor) -> te.Tensor:
    """``power * base**digit``: a product of squares, one for each bit."""

    def product(power: Any, base: Any, digit: Any) -> Any:
        one = tirx.const(1, base.ty)
        squares = [tirx.Var(f"square{i}", base.ty) for i in range(_BITS)]
        result = power
        for i, square in enumerate(squares):
            bit = (digit >> tirx.const(i, base.ty)) & one
            result = result * tirx.Select(bit == one, square, one)
        for i in reversed(range(1, _BITS)):
            result = tirx.Let(squares[i], squares[i - 1] * squares[i - 1], result)
        return tirx.Let(squares[0], base, result)

    return _elementwise(product, power, base, digit)


def _squared(base: te.Tensor) -> te.Tensor:
    """``base ** 2**_BITS``."""

    def squared(base: Any) -> Any:
        squares = [tirx.Var(f"square{i}", base.ty) for i in range(_BITS)]
        result = squares[-1] * squares[-1]
        for i in reversed(range(1, _BITS)):
            result = tirx.Let(squares[i], squares[i - 1] * squares[i - 1], result)
        return tirx.Let(squares[0], base, result)

    return _elementwise(squared, base)


def _unless_negative(power: te.Tensor, base: te.Tensor, exponent: te.Tensor) -> te.Tensor:
    """The power, or what it is for a negative exponent."""

    def chosen(power: Any, base: Any, exponent: Any) -> Any:
        zero, one = tirx.const(0, base.ty), tirx.const(1, base.ty)
        is_odd = (exponent & one) == one
        of_minus_one = tirx.Select(is_odd, base, one)
        inverse = tirx.Select(base == -one, of_minus_one, zero)
        inverse = tirx.Select(base == one, one, inverse)
        return tirx.Select(exponent < zero, inverse, power)

    return _elementwise(chosen, power, base, exponent)
