"""Quotients and remainders of integers.

A CPU ends the process where it divides by zero, or the least number by -1. PyTorch raises an error
for zero on a CPU, and on a GPU gives any number. Here the divisor counts as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from . import arithmetic
from .arithmetic import common_type
from .call import TorchCall

Operator = Callable[..., Any]

#: The divisors by which some division ends the process.
_ENDING = (0, -1)


def divided(operator: Operator, call: TorchCall) -> Any:
    """A division of integers by an operator of TVM that gives a quotient or a remainder."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    left, right = arithmetic.as_tensors(call, operands, dtype)
    if isinstance(operands[1], int) and operands[1] not in _ENDING:
        return call.emit(operator(left, right))
    one = relax.const(1, dtype)
    ends_process = call.emit(relax.op.equal(right, relax.const(0, dtype)))
    if not dtype.startswith("uint"):
        negates = call.emit(relax.op.equal(right, relax.const(-1, dtype)))
        left = call.emit(relax.op.where(negates, relax.op.negative(left), left))
        ends_process = call.emit(relax.op.logical_or(ends_process, negates))
    return call.emit(operator(left, relax.op.where(ends_process, one, right)))
