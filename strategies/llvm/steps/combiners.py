"""Combines an update with an element on a CPU, for every reduction and data type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from tvm_scatter.emit.wrapping import wrapping_add, wrapping_mul
from tvm_scatter.problem.reductions import FLOATS, REDUCTIONS, Reduction

from .total_order import bits_of, either, is_nan, last, one_nan, ordered
from .values import HALF, computed_dtype, convert

Combine = Callable[[Any, Any, str], Any]


@dataclass(frozen=True)
class Combiner:
    """The code of a combiner for each kind of data type.

    Parameters
    ----------
    booleans, integers, floats : callable
        The functions ``combine(old, update, dtype)`` for these data types. Integers wrap around.
        Minimum and maximum of floats follow
        :meth:`~tvm_scatter.problem.reductions.Reduction.last_in_order`.
    """

    booleans: Combine
    integers: Combine
    floats: Combine


def combine(reduction: Reduction, dtype: str, old: Any, update: Any) -> Any:
    """``old`` combined with ``update``."""
    combiner = COMBINERS[reduction.combiner]
    if dtype == "bool":
        return combiner.booleans(old, update, dtype)
    return (combiner.floats if dtype in FLOATS else combiner.integers)(old, update, dtype)


def _update(_old: Any, update: Any, _dtype: str) -> Any:
    return update


def _any(old: Any, update: Any, _dtype: str) -> Any:
    return tirx.any(old, update)


def _all(old: Any, update: Any, _dtype: str) -> Any:
    return tirx.all(old, update)


def _min(old: Any, update: Any, _dtype: str) -> Any:
    return tirx.min(old, update)


def _max(old: Any, update: Any, _dtype: str) -> Any:
    return tirx.max(old, update)


def _add_floats(old: Any, update: Any, dtype: str) -> Any:
    wide = computed_dtype(dtype)
    return convert(convert(old, wide) + convert(update, wide), dtype)


def _mul_floats(old: Any, update: Any, dtype: str) -> Any:
    wide = computed_dtype(dtype)
    return convert(convert(old, wide) * convert(update, wide), dtype)


def _extreme_of_floats(reduction: Reduction, old: Any, update: Any, dtype: str) -> Any:
    bits = bits_of(old)
    if dtype in HALF:
        update_bits = one_nan(reduction, update)
        left, right = ordered(bits), ordered(update_bits)
        better = left <= right if reduction.selects_least else left >= right
        kept = tirx.any(better, is_nan(bits, dtype))
        return tirx.reinterpret(dtype, either(kept, bits, update_bits))
    numbers = _extreme_of_numbers(reduction, old, update)
    extreme = either(tirx.isnan(update), last(reduction, dtype), numbers)
    return tirx.reinterpret(dtype, either(tirx.isnan(old), bits, extreme))


def _extreme_of_numbers(reduction: Reduction, old: Any, update: Any) -> Any:
    """The bits of the minimum or maximum of two numbers.

    Equal numbers differ at most in the sign of zero. Two comparisons, which choose differently
    between equal numbers, and a bitwise operation settle that sign.
    """
    if reduction.selects_least:
        sides = tirx.Select(old < update, old, update), tirx.Select(update < old, update, old)
        return tirx.bitwise_or(*map(bits_of, sides))
    sides = tirx.Select(old > update, old, update), tirx.Select(update > old, update, old)
    return tirx.bitwise_and(*map(bits_of, sides))


#: The combiners, by name.
COMBINERS = {
    "update": Combiner(_update, _update, _update),
    "add": Combiner(_any, wrapping_add, _add_floats),
    "mul": Combiner(_all, wrapping_mul, _mul_floats),
    "min": Combiner(_all, _min, partial(_extreme_of_floats, REDUCTIONS["min"])),
    "max": Combiner(_any, _max, partial(_extreme_of_floats, REDUCTIONS["max"])),
}
