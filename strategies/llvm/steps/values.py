"""What one update does to one element on a CPU, for every reduction and data type."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.target import Target

from tvm_scatter.emit.wrapping import wrapping_add, wrapping_mul
from tvm_scatter.problem.reductions import (
    EXTREMES,
    FLOATS,
    identity,
    item_bytes,
    last_in_order,
    numpy_dtype,
)
from tvm_scatter.strategies.llvm import half

_HALF = ("float16", "bfloat16")


def accumulator_dtype(reduction: str, dtype: str) -> str:
    """The type in which a segment is reduced: single precision where half types would round."""
    # TVM makes float32 of local bfloat16 numbers, whose bits are not to be had then.
    keeps = dtype == "float16" and reduction in EXTREMES
    return "float32" if dtype in _HALF and not keeps else dtype


def start_value(reduction: str, dtype: str) -> Any:
    """The identity of the reduction."""
    return tirx.const(identity(reduction, dtype), dtype)


def combine(reduction: str, dtype: str, old: Any, update: Any) -> Any:
    """``old`` combined with ``update``; integers wrap around.

    Minimum and maximum of floats follow :func:`~tvm_scatter.problem.reductions.last_in_order`.
    """
    if reduction == "update":
        return update
    if dtype == "bool":
        either = reduction in ("add", "mean", "max")
        return tirx.any(old, update) if either else tirx.all(old, update)
    if reduction in ("add", "mean", "mul"):
        if dtype in FLOATS:
            wide = _computed(dtype)
            left, right = convert(old, wide), convert(update, wide)
            return convert(left * right if reduction == "mul" else left + right, dtype)
        wrapping = wrapping_mul if reduction == "mul" else wrapping_add
        return wrapping(old, update, dtype)
    if dtype not in FLOATS:
        return tirx.min(old, update) if reduction == "min" else tirx.max(old, update)
    bits = _bits(old)
    if dtype in _HALF:
        update_bits = _one_nan(reduction, update)
        left, right = _ordered(bits), _ordered(update_bits)
        better = left <= right if reduction == "min" else left >= right
        kept = tirx.any(better, _is_nan(bits, dtype))
        return tirx.reinterpret(dtype, _either(kept, bits, update_bits))
    last = _last(reduction, dtype)
    extreme = _either(tirx.isnan(update), last, _extreme(reduction, old, update))
    return tirx.reinterpret(dtype, _either(tirx.isnan(old), bits, extreme))


def _extreme(reduction: str, old: Any, update: Any) -> Any:
    """The bits of the minimum or maximum of two numbers.

    Of equal ones each comparison keeps another, and they differ in the sign of a zero at most.
    """
    if reduction == "min":
        sides = tirx.Select(old < update, old, update), tirx.Select(update < old, update, old)
        return tirx.bitwise_or(*map(_bits, sides))
    sides = tirx.Select(old > update, old, update), tirx.Select(update > old, update, old)
    return tirx.bitwise_and(*map(_bits, sides))


def _either(condition: Any, bits: Any, otherwise: Any) -> Any:
    """The bits to choose; TVM makes a branch of a Select between calls, and then no vectors."""
    dtype = str(bits.ty.dtype)
    mask = tirx.const(0, dtype) - tirx.Cast(dtype, condition)
    return tirx.bitwise_or(
        tirx.bitwise_and(mask, bits), tirx.bitwise_and(tirx.bitwise_not(mask), otherwise)
    )


def alone(reduction: str, dtype: str, update: Any) -> Any:
    """The result of a single update that is combined with nothing."""
    if reduction not in EXTREMES or dtype not in FLOATS:
        return update
    return tirx.reinterpret(dtype, _one_nan(reduction, update))


def stored(reduction: str, dtype: str, total: Any, old: Any = None) -> Any:
    """An accumulated value in the type of the data, with ``old`` what it includes.

    Conversions keep of a NaN what they please.
    """
    value = convert(total, dtype)
    if reduction not in EXTREMES or str(total.ty.dtype) == dtype:
        return value
    value = tirx.Select(tirx.isnan(total), _last_float(reduction, dtype), value)
    return value if old is None else tirx.Select(_is_nan(_bits(old), dtype), old, value)


def same_bits(left: Any, right: Any) -> Any:
    """Whether two values of one type have equal bits."""
    return _bits(left) == _bits(right)


def _bits(value: Any) -> Any:
    """The bits of a value as a signed integer."""
    dtype = str(value.ty.dtype)
    if dtype == "bool":
        # TVM compares truth values as if they were floating-point numbers.
        return tirx.Cast("int8", value)
    return tirx.reinterpret(_bits_dtype(dtype), value) if dtype in FLOATS else value


def _bits_dtype(dtype: str) -> str:
    return f"int{8 * item_bytes(dtype)}"


def _is_nan(bits: Any, dtype: str) -> Any:
    """Whether bits are those of a NaN."""
    integer = _bits_dtype(dtype)
    infinity = np.array(np.inf, numpy_dtype(dtype)).view(integer).item()
    magnitude = tirx.bitwise_and(bits, tirx.const(int(np.iinfo(integer).max), integer))
    return magnitude > tirx.const(infinity, integer)


def _one_nan(reduction: str, value: Any) -> Any:
    """The bits of a value; of every NaN those at the end of the total order."""
    dtype = str(value.ty.dtype)
    bits = _bits(value)
    return _either(_is_nan(bits, dtype), _last(reduction, dtype), bits)


def _last(reduction: str, dtype: str) -> Any:
    return tirx.const(last_in_order(reduction, dtype), _bits_dtype(dtype))


def _last_float(reduction: str, dtype: str) -> Any:
    return tirx.reinterpret(dtype, _last(reduction, dtype))


def _ordered(bits: Any) -> Any:
    """The bits of a float as an integer that IEEE 754's total order orders: -0 before +0."""
    dtype = str(bits.ty.dtype)
    sign = tirx.shift_right(bits, tirx.const(np.iinfo(dtype).bits - 1, dtype))
    magnitude = tirx.const(int(np.iinfo(dtype).max), dtype)
    return tirx.bitwise_xor(bits, tirx.bitwise_and(sign, magnitude))


def mean(dtype: str, total: Any, count: Any) -> Any:
    """``total / count`` in the type of ``total``; integers round down, as in PyTorch."""
    if dtype == "bool":
        return total
    if dtype in FLOATS:
        wide = "float64" if dtype == "float64" else "float32"
        return convert(convert(total, wide) / tirx.Cast(wide, count), dtype)
    if dtype.startswith("u"):
        return convert(tirx.truncdiv(convert(total, "uint64"), tirx.Cast("uint64", count)), dtype)
    return convert(tirx.floordiv(convert(total, "int64"), convert(count, "int64")), dtype)


def convert(value: Any, dtype: str) -> Any:
    """A value in another type."""
    source = str(value.ty.dtype)
    if source == dtype:
        return value
    if {source, dtype} == {"float16", "float32"} and _lacks_half():
        return half.narrow(value) if dtype == "float16" else half.widen(value)
    return tirx.Cast(dtype, value)


def _computed(dtype: str) -> str:
    """The type to compute in: LLVM's own arithmetic in float16 would convert every operand."""
    return "float32" if dtype == "float16" and _lacks_half() else dtype


def _lacks_half() -> bool:
    return not half.has_instructions(Target.current())
