"""``remainder`` and divisions that are rounded down, of floats as PyTorch defines them.

TVM takes ``a - floor(a / b) * b`` for the remainder, which is far off where the quotient is great,
and no number for an infinite divisor.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from . import arithmetic, functions
from .arithmetic import common_type, is_integral
from .call import TorchCall
from .floats import of_type


def remainder(call: TorchCall) -> Any:
    """``remainder``."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if is_integral(dtype):
        return arithmetic.binary(relax.op.floor_mod, None, call)
    return of_type(functions.remainder, call, operands, dtype)


def divide(call: TorchCall) -> Any:
    """``div``, with each rounding mode."""
    if call.get("rounding_mode", None) == "floor":
        return floor_divide(call)
    return arithmetic.divide(call)


def floor_divide(call: TorchCall) -> Any:
    """``floor_divide``."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if is_integral(dtype):
        return arithmetic.floor_divide_integers(call)
    return of_type(functions.floor_quotient, call, operands, dtype)
