"""IEEE 754's total order of floats, by comparing their bits as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from tvm_scatter.problem.reductions import FLOATS, Reduction, item_bytes, numpy_dtype


def bits_of(value: Any) -> Any:
    """The bits of a value as a signed integer."""
    dtype = str(value.ty.dtype)
    if dtype == "bool":
        # TVM compares booleans as if they were floats.
        return tirx.Cast("int8", value)
    if isinstance(value, tirx.FloatImm) and dtype == "bfloat16":
        # TVM takes a constant of bfloat16 for one of float32.
        number = np.array(float(value.value)).astype(numpy_dtype(dtype))
        return tirx.const(number.view(_bits_dtype(dtype)).item(), _bits_dtype(dtype))
    return tirx.reinterpret(_bits_dtype(dtype), value) if dtype in FLOATS else value


def _bits_dtype(dtype: str) -> str:
    return f"int{8 * item_bytes(dtype)}"


def is_nan(bits: Any, dtype: str) -> Any:
    """Whether ``bits`` are those of a NaN."""
    integer = _bits_dtype(dtype)
    infinity = np.array(np.inf, numpy_dtype(dtype)).view(integer).item()
    magnitude = tirx.bitwise_and(bits, tirx.const(int(np.iinfo(integer).max), integer))
    return magnitude > tirx.const(infinity, integer)


def one_nan(reduction: Reduction, value: Any) -> Any:
    """The bits of a value. Every NaN becomes the one at the end of the total order."""
    dtype = str(value.ty.dtype)
    bits = bits_of(value)
    return either(is_nan(bits, dtype), last(reduction, dtype), bits)


def last(reduction: Reduction, dtype: str) -> Any:
    """The bits of the NaN at the end of the total order."""
    return tirx.const(reduction.last_in_order(dtype), _bits_dtype(dtype))


def last_float(reduction: Reduction, dtype: str) -> Any:
    """The NaN at the end of the total order."""
    return tirx.reinterpret(dtype, last(reduction, dtype))


def ordered(bits: Any) -> Any:
    """Map the bits of a float to an integer in IEEE 754's total order: -0 before +0."""
    dtype = str(bits.ty.dtype)
    sign = tirx.shift_right(bits, tirx.const(np.iinfo(dtype).bits - 1, dtype))
    magnitude = tirx.const(int(np.iinfo(dtype).max), dtype)
    return tirx.bitwise_xor(bits, tirx.bitwise_and(sign, magnitude))


def either(condition: Any, bits: Any, otherwise: Any) -> Any:
    """Choose between bits. TVM makes a Select between calls a branch, which does not vectorise."""
    dtype = str(bits.ty.dtype)
    mask = tirx.const(0, dtype) - tirx.Cast(dtype, condition)
    return tirx.bitwise_or(
        tirx.bitwise_and(mask, bits), tirx.bitwise_and(tirx.bitwise_not(mask), otherwise)
    )
