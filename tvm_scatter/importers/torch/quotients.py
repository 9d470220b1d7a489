"""``remainder`` and divisions that are rounded down, of floats as PyTorch defines them.

TVM takes ``a - floor(a / b) * b`` for the remainder, which is far off where the quotient is great,
and no number for an infinite divisor.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from . import arithmetic, functions
from .arithmetic import Operator, common_type, is_integral
from .call import TorchCall
from .floats import Function, of_type
from .integer_quotients import divided


def remainder(call: TorchCall) -> Any:
    """``remainder``."""
    return _divided(relax.op.floor_mod, functions.remainder, call)


def divide(call: TorchCall) -> Any:
    """``div``, with each rounding mode."""
    mode = call.get("rounding_mode", None)
    if mode == "floor":
        return floor_divide(call)
    if mode == "trunc" and is_integral(common_type(call["self"], call["other"])):
        # TVM's quotient of integers is rounded towards zero.
        return divided(relax.op.divide, call)
    return arithmetic.divide(call)


def truncated_remainder(call: TorchCall) -> Any:
    """``fmod``."""
    if is_integral(common_type(call["self"], call["other"])):
        return divided(relax.op.mod, call)
    return arithmetic.binary(relax.op.mod, None, call)


def floor_divide(call: TorchCall) -> Any:
    """``floor_divide``."""
    return _divided(relax.op.floor_divide, functions.floor_quotient, call)


def _divided(of_integers: Operator, of_floats: Function, call: TorchCall) -> Any:
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if is_integral(dtype):
        return divided(of_integers, call)
    return of_type(of_floats, call, operands, dtype)
