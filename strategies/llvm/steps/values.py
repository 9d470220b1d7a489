"""Reads, accumulates and stores values on a CPU, for every data type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.target import Target

from tvm_scatter.emit.computed_updates import ComputedUpdates
from tvm_scatter.problem.reductions import (
    FLOATS,
    Reduction,
)
from tvm_scatter.strategies.llvm import half

from .total_order import bits_of, is_nan, last_float, one_nan

HALF = ("float16", "bfloat16")
#: The type that sums of them are made in.
WIDE = "float32"


def accumulator_dtype(reduction: Reduction, dtype: str) -> str:
    """The type in which a segment is reduced: float32 for most reductions of 16-bit floats."""
    # TVM stores local bfloat16 numbers as float32, and then their bits are not accessible.
    keeps = dtype == "float16" and reduction.is_extreme
    return WIDE if dtype in HALF and not keeps else dtype


def read_as(updates: Any, dtype: str) -> tuple[str, Callable[[Any], Any]]:
    """The type that updates for data of a type are read in, and what rounds them."""
    if not isinstance(updates, ComputedUpdates):
        return dtype, _as_it_is
    return updates.dtype, updates.rounding or _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def start_value(reduction: Reduction, dtype: str) -> Any:
    """The identity of the reduction, as a constant."""
    return tirx.const(reduction.identity(dtype), dtype)


def alone(reduction: Reduction, dtype: str, update: Any) -> Any:
    """The result of a single update without any other value."""
    if not reduction.is_extreme or dtype not in FLOATS:
        return update
    return tirx.reinterpret(dtype, one_nan(reduction, update))


def stored(reduction: Reduction, dtype: str, total: Any, old: Any = None) -> Any:
    """An accumulated value in the type of the data; ``old`` is the data that it includes.

    Conversions may change the bits of a NaN, so a NaN in the data is kept as it is.
    """
    value = convert(total, dtype)
    if not reduction.is_extreme or str(total.ty.dtype) == dtype:
        return value
    value = tirx.Select(tirx.isnan(total), last_float(reduction, dtype), value)
    return value if old is None else tirx.Select(is_nan(bits_of(old), dtype), old, value)


def same_bits(left: Any, right: Any) -> Any:
    """Whether two values of one type have equal bits."""
    return bits_of(left) == bits_of(right)


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
    """A value converted to another type."""
    source = str(value.ty.dtype)
    if source == dtype:
        return value
    if {source, dtype} == {"float16", "float32"} and _lacks_half():
        return half.narrow(value) if dtype == "float16" else half.widen(value)
    return tirx.Cast(dtype, value)


def computed_dtype(dtype: str) -> str:
    """The type to compute in: float32 for float16, whose operands LLVM would convert one by one."""
    return "float32" if dtype == "float16" and _lacks_half() else dtype


def _lacks_half() -> bool:
    return not half.has_instructions(Target.current())
