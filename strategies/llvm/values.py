"""What one update does to one element on a CPU, for every reduction and data type."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvm_scatter.reductions import FLOATS, identity

_HALF = ("float16", "bfloat16")
_UNSIGNED = {"int32": "uint32", "int64": "uint64"}


def accumulator_dtype(dtype: str) -> str:
    """The type in which a segment is reduced: single precision for half types."""
    return "float32" if dtype in _HALF else dtype


def start_value(reduction: str, dtype: str) -> Any:
    """The identity of the reduction."""
    return tirx.const(identity(reduction, dtype), dtype)


def combine(reduction: str, dtype: str, old: Any, update: Any) -> Any:
    """``old`` combined with ``update``; minimum and maximum keep a NaN, integers wrap around."""
    if reduction == "update":
        return update
    if dtype == "bool":
        either = reduction in ("add", "mean", "max")
        return tirx.any(old, update) if either else tirx.all(old, update)
    if reduction in ("add", "mean", "mul"):
        # Signed overflow is undefined in LLVM at 32 and 64 bits; unsigned wraps around.
        wide = _UNSIGNED.get(dtype, dtype)
        left, right = convert(old, wide), convert(update, wide)
        return convert(left * right if reduction == "mul" else left + right, dtype)
    if dtype not in FLOATS:
        return tirx.min(old, update) if reduction == "min" else tirx.max(old, update)
    better = old < update if reduction == "min" else old > update
    return tirx.Select(tirx.any(better, is_nan(old)), old, update)


def is_nan(value: Any) -> Any:
    """Whether a floating-point value is a NaN; TVM simplifies ``value != value`` to false."""
    if str(value.ty.dtype) in _HALF:
        value = tirx.Cast("float32", value)
    return tirx.isnan(value)


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
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)
