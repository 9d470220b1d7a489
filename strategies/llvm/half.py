"""Converts float16 by integer arithmetic, for processors without instructions for it.

On these LLVM calls a function for every element, and cannot vectorise the loop.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.target import Target
from tvm.target.codegen import target_has_features
from tvm.tirx.script import builder as T

#: LLVM's names of the features that convert float16: x86, 64-bit and 32-bit ARM, RISC-V.
_INSTRUCTIONS = ("f16c", "fp-armv8", "fp16", "zfhmin")
_SIGN, _MAGNITUDE = 0x8000, 0x7FFF
#: The mantissa of float32 has 13 bits more. Its exponent has a bias of 127, that of float16 of 15.
_MORE_BITS = 13
_MORE_BIAS = 127 - 15
_EXPONENT = 23
_WIDE_MAGNITUDE, _WIDE_INFINITY = 0x7FFFFFFF, 0x7F800000
_PAYLOAD, _QUIET = 0x3FF, 0x200
#: The least normal float16, and the power of two above the greatest.
_LEAST, _BEYOND = 2.0**-14, 2.0**16


def has_instructions(target: Target) -> bool:
    """Whether a CPU has instructions that convert float16."""
    return any(target_has_features(feature, target) for feature in _INSTRUCTIONS)


def widen(value: Any) -> Any:
    """A float16 as float32, exactly. A signalling NaN stays signalling.

    Emits statements into the current function.
    """
    bits = T.bind(tirx.Cast("int32", tirx.reinterpret("uint16", value)))
    rebiased = ((bits & _MAGNITUDE) << _MORE_BITS) + (_MORE_BIAS << _EXPONENT)
    y = T.bind(_as_float(rebiased))
    # 2*y is the subnormal plus 2**-14, because of the implicit leading one.
    finite = _as_int(y + y - _larger(y, _LEAST))
    infinite = tirx.Select(y >= _float(_BEYOND), _int(_WIDE_INFINITY), _int(0))
    return _as_float(finite | infinite | ((bits & _SIGN) << 16))


def narrow(value: Any) -> Any:
    """A float32 rounded to the nearest float16, ties to even. A NaN becomes quiet.

    Emits statements into the current function.
    """
    bits = T.bind(_as_int(value))
    x = T.bind(_as_float(bits & _WIDE_MAGNITUDE))
    y = T.bind(tirx.Select(x < _float(_BEYOND), x, _float(_BEYOND)))
    power = T.bind(_as_int(_larger(_as_float(_as_int(y) & _WIDE_INFINITY), _LEAST)))
    # The exponent of this sum is such that its mantissa has the bits of float16: the hardware
    # rounds.
    shifted = power + (_MORE_BITS << _EXPONENT)
    mantissa = _as_int(y + _as_float(shifted)) - shifted
    exponent = (power >> _MORE_BITS) - ((_MORE_BIAS + 1) << (_EXPONENT - _MORE_BITS))
    nan = tirx.Select(tirx.isnan(x), ((bits >> _MORE_BITS) & _PAYLOAD) | _QUIET, _int(0))
    half = (mantissa + exponent) | nan | ((bits >> 16) & _SIGN)
    return tirx.reinterpret("float16", tirx.Cast("uint16", half))


def _larger(value: Any, least: float) -> Any:
    """The larger of a number and a constant, as one instruction. Neither may be a NaN."""
    return tirx.Select(value > _float(least), value, _float(least))


def _as_float(value: Any) -> Any:
    return tirx.reinterpret("float32", value)


def _as_int(value: Any) -> Any:
    return tirx.reinterpret("int32", value)


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
