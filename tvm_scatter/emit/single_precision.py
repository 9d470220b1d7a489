"""Expressions of bfloat16 as expressions of float32, for code generators that lack bfloat16.

TVM takes a variable bound to a computed bfloat16 for its bits, on targets that compute it in
float32. What is float32 from the first load on has no such variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_scatter.problem.reductions import numpy_dtype

from .computed_updates import ComputedUpdates, parts_of

_NARROW, _WIDE = "bfloat16", "float32"
#: What is as exact as its operands, which are rounded.
_EXACT = (tvm.ir.TensorLoad, tirx.FloatImm, tirx.Max, tirx.Min, tirx.Select)
#: What makes of rounded operands no NaN but theirs and the processor's own.
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)


def compute_in_single_precision(updates: ComputedUpdates) -> ComputedUpdates:
    """The updates, which are emitted as float32 wherever they were of bfloat16."""
    updates.emitted = in_single_precision
    if _is_narrow(updates.value):
        updates.dtype = _WIDE
        updates.rounding = _rounding(updates.value)
    return updates


def in_single_precision(expression: Any) -> Any:
    """The expression, computed in float32 wherever it is of bfloat16, and rounded after each step.

    The last step is not rounded.

    Parameters
    ----------
    expression : expression
        Of loads, constants, operators, functions, casts and choices.
    """
    if isinstance(expression, tvm.ir.TensorLoad):
        return _widened(expression) if _is_narrow(expression) else expression
    if isinstance(expression, tirx.FloatImm):
        return _number(expression) if _is_narrow(expression) else expression
    if isinstance(expression, tirx.Cast):
        return _cast(_dtype(expression), _operand(expression.value))
    parts = parts_of(expression)
    if not parts:
        return expression
    return _with_parts(expression, [_operand(part) for part in parts])


def _operand(expression: Any) -> Any:
    """What is computed from further: rounded, if it is not exact."""
    rounding, single = _rounding(expression), in_single_precision(expression)
    return single if rounding is None else rounding(single)


def _rounding(expression: Any) -> Callable[[Any], Any] | None:
    """What rounds an expression that is computed in float32; ``None`` if it is exact."""
    if isinstance(expression, _EXACT) or not _is_narrow(expression):
        return None
    return rounded_arithmetic if isinstance(expression, _ARITHMETIC) else rounded


def _dtype(expression: Any) -> str:
    """The type that an expression is computed in."""
    return _WIDE if _is_narrow(expression) else str(expression.ty.dtype)


def _cast(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def _number(constant: tirx.FloatImm) -> Any:
    """A constant as it stands in memory: TVM keeps it as it was given."""
    rounded_once = np.asarray(float(constant.value)).astype(numpy_dtype(_NARROW))
    return tirx.const(float(rounded_once), _WIDE)


def _widened(load: Any) -> Any:
    """What is loaded as float32. Of a cast in a bound variable TVM makes one of the bits."""
    bits = tirx.Cast("uint32", tirx.reinterpret("uint16", load))
    return tirx.reinterpret(_WIDE, tirx.shift_left(bits, tirx.const(16, "uint32")))


def _with_parts(expression: Any, parts: list[Any]) -> Any:
    if isinstance(expression, tvm.ir.Call):
        return tirx.call_intrin(_dtype(expression), expression.op, *parts)
    return type(expression)(*parts)


def _is_narrow(expression: Any) -> bool:
    return str(expression.ty.dtype) == _NARROW


def rounded(value: Any) -> Any:
    """A float32 rounded to the nearest bfloat16, ties to even, still as float32.

    A NaN stays one.
    """
    bits = tirx.Var("bits", "int32")
    nearest = _nearest(bits)
    quiet = tirx.bitwise_or(bits, _int(0x400000))
    is_nan = tirx.bitwise_and(bits, _int(0x7FFFFFFF)) > _int(0x7F800000)
    # By a mask, because TVM makes a choice between calls a branch.
    mask = _int(0) - tirx.Cast("int32", is_nan)
    chosen = tirx.bitwise_or(
        tirx.bitwise_and(mask, quiet), tirx.bitwise_and(tirx.bitwise_not(mask), nearest)
    )
    # Without a name the value would stand there four times, and its own operands sixteen times.
    return tirx.reinterpret(_WIDE, tirx.Let(bits, tirx.reinterpret("int32", value), chosen))


def rounded_arithmetic(value: Any) -> Any:
    """The same for a sum, difference, product or quotient of what is rounded.

    The lower half of a NaN among these is zero, so that rounding leaves it as it is.
    """
    bits = tirx.Var("bits", "int32")
    return tirx.reinterpret(_WIDE, tirx.Let(bits, tirx.reinterpret("int32", value), _nearest(bits)))


def _nearest(bits: Any) -> Any:
    """The bits of a number, rounded to the upper half."""
    odd = tirx.bitwise_and(tirx.shift_right(bits, _int(16)), _int(1))
    return tirx.bitwise_and(bits + _int(0x7FFF) + odd, _int(-0x10000))


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
