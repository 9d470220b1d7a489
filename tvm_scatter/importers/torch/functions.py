"""Functions of single floats, as expressions of type float32 or float64.

The mathematical libraries of C and of CUDA have most of them, under the same names.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from tvm_scatter.emit.numbers import number_like, polynomial, ratio

#: Asymptotic series of the digamma function, and where it begins.
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_DIGAMMA_FROM = 10
#: The constant of Euler and Mascheroni.
_EULER = 0.57721566490153286
#: A rational approximation of the inverse of erf close to zero, and one close to 1.
_INVERSE = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
_INVERSE_OF_TAILS = (
    (1.641345311, 3.429567803, -1.624906493, -1.970840454),
    (1.637067800, 3.543889200, 1.0),
)


def library(name: str, *values: Any) -> Any:
    """A function of the mathematical library."""
    dtype = str(values[0].ty)
    return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *values)


def is_negative(value: Any) -> Any:
    """Whether the sign bit of a float is set, which that of -0.0 is."""
    return with_sign(tirx.const(1, value.ty), value) < _zero(value)


def with_sign(value: Any, sign: Any) -> Any:
    """``copysign``."""
    return library("copysign", value, sign)


def times_zero(zero: float, value: Any) -> Any:
    """The product with a zero, which has a sign."""
    signed = with_sign(_zero(value), value * number_like(math.copysign(1, zero), value))
    known = tirx.abs(value) < number_like(math.inf, value)
    return tirx.Select(known, signed, number_like(math.nan, value))


def log_add_exp(one: Any, other: Any) -> Any:
    """``logaddexp``."""
    sum_ = tirx.max(one, other) + library("log1p", tirx.exp(-tirx.abs(one - other)))
    return _equal_or(one, other, sum_)


def log_add_exp2(one: Any, other: Any) -> Any:
    """``logaddexp2``."""
    two = tirx.const(2, one.ty)
    sum_ = library("log1p", tirx.pow(two, -tirx.abs(one - other)))
    sum_ = tirx.max(one, other) + sum_ * tirx.const(1 / math.log(2), one.ty)
    return _equal_or(one, other, sum_)


def lgamma(value: Any) -> Any:
    """``lgamma``. Close to zero by its series: GPUs' fast mathematics take a square there for 0."""
    size = tirx.abs(value)
    small = -tirx.log(size) - tirx.const(_EULER, value.ty) * value
    limit = 1e-5 if str(value.ty) == "float32" else 1e-11
    return tirx.Select(size < tirx.const(limit, value.ty), small, library("lgamma", value))


def digamma(value: Any) -> Any:
    """``digamma``: a recurrence to a greater number, and its asymptotic series there."""
    one = tirx.const(1, value.ty)
    below = value < _zero(value)
    reflected = tirx.Select(below, one - value, value)
    result = _zero(value)
    for step in range(_DIGAMMA_FROM):
        result = result - one / (reflected + tirx.const(step, value.ty))
    large = reflected + tirx.const(_DIGAMMA_FROM, value.ty)
    square = one / (large * large)
    series = square * polynomial(_DIGAMMA, square)
    result = result + tirx.log(large) - tirx.const(0.5, value.ty) / large - series
    result = tirx.Select(_is(reflected, math.inf), reflected, result)
    fraction = value - tirx.trunc(value)
    # The sine that CUDA's fast mathematics has is zero of small numbers.
    angle = fraction.astype("float64") * tirx.const(math.pi, "float64")
    cotangent = tirx.cos(angle) / tirx.sin(angle) * tirx.const(math.pi, "float64")
    mirrored = result - cotangent.astype(str(value.ty))
    mirrored = tirx.Select(fraction == _zero(value), number_like(math.nan, value), mirrored)
    result = tirx.Select(below, mirrored, result)
    pole = tirx.Select(
        is_negative(value), number_like(math.inf, value), number_like(-math.inf, value)
    )
    return tirx.Select(value == _zero(value), pole, result)


def inverse_erf(value: Any) -> Any:
    """``erfinv``: an approximation, made precise by two steps of Newton's method."""
    one, size = tirx.const(1, value.ty), tirx.abs(value)
    middle = value * ratio(_INVERSE, value * value)
    tail = tirx.sqrt(-tirx.log((one - size) / tirx.const(2, value.ty)))
    tail = with_sign(ratio(_INVERSE_OF_TAILS, tail), value)
    found = tirx.Select(size <= tirx.const(0.7, value.ty), middle, tail)
    slope = tirx.const(2 / math.sqrt(math.pi), value.ty)
    for _ in range(2):
        found = found - (tirx.erf(found) - value) / (slope * tirx.exp(-found * found))
    return tirx.Select(size == one, with_sign(number_like(math.inf, value), value), found)


def angle(value: Any) -> Any:
    """``angle`` of real numbers."""
    of_number = tirx.Select(value < _zero(value), tirx.const(math.pi, value.ty), _zero(value))
    return tirx.Select(tirx.isnan(value), value, of_number)


def remainder(value: Any, divisor: Any) -> Any:
    """``remainder`` of floats, which has the sign of the divisor."""
    rest = library("fmod", value, divisor)
    return tirx.Select(_is_beside(rest, divisor), rest + divisor, rest)


def floor_quotient(value: Any, divisor: Any) -> Any:
    """``floor_divide`` of floats: the quotient of what the remainder leaves, a whole number."""
    zero, one = _zero(value), tirx.const(1, value.ty)
    rest = library("fmod", value, divisor)
    quotient = (value - rest) / divisor
    quotient = tirx.Select(_is_beside(rest, divisor), quotient - one, quotient)
    whole = tirx.floor(quotient)
    whole = tirx.Select(quotient - whole > tirx.const(0.5, value.ty), whole + one, whole)
    whole = tirx.Select(quotient == zero, with_sign(zero, value / divisor), whole)
    return tirx.Select(divisor == zero, value / divisor, whole)


def mantissa(value: Any) -> Any:
    """The mantissa of ``frexp``, from 0.5 to 1. Zero and what is not finite is its own."""
    bits, width, bias, _ = _fields(value)
    kept = bits & tirx.const(~((2 * bias + 1) << width), bits.ty)
    half = kept | tirx.const((bias - 1) << width, bits.ty)
    return tirx.Select(_has_exponent(value), tirx.reinterpret(str(value.ty), half), value)


def exponent(value: Any) -> Any:
    """The exponent of ``frexp``, as a float."""
    bits, width, bias, shift = _fields(value)
    found = (bits >> tirx.const(width, bits.ty)) & tirx.const(2 * bias + 1, bits.ty)
    found = found.astype(str(value.ty)) - number_like(bias - 1, value)
    found = found - tirx.Select(_is_tiny(value), number_like(shift, value), _zero(value))
    return tirx.Select(_has_exponent(value), found, _zero(value))


def _fields(value: Any) -> tuple[Any, int, int, int]:
    """The bits of a float, scaled to a normal one; where the exponent is, its bias, the scale."""
    single = str(value.ty) == "float32"
    width, bias, shift = (23, 127, 25) if single else (52, 1023, 54)
    scaled = tirx.Select(_is_tiny(value), value * number_like(2.0**shift, value), value)
    bits = tirx.reinterpret("int32" if single else "int64", scaled)
    return bits, width, bias, shift


def _is_tiny(value: Any) -> Any:
    least = 2.0**-126 if str(value.ty) == "float32" else 2.0**-1022
    return tirx.abs(value) < number_like(least, value)


def _has_exponent(value: Any) -> Any:
    return tirx.all(value != _zero(value), tirx.abs(value) < number_like(math.inf, value))


def _is_beside(rest: Any, divisor: Any) -> Any:
    """Whether a remainder towards zero has another sign than the divisor."""
    zero = _zero(rest)
    # Not a number is on no side.
    return tirx.any(tirx.all(rest > zero, divisor < zero), tirx.all(rest < zero, divisor > zero))


def _equal_or(one: Any, other: Any, sum_: Any) -> Any:
    """``sum_``, but infinity if both are that."""
    return tirx.Select(tirx.all(one == other, _is(tirx.abs(one), math.inf)), one, sum_)


def _is(value: Any, number: float) -> Any:
    return value == number_like(number, value)


def _zero(like: Any) -> Any:
    return tirx.const(0, like.ty)
