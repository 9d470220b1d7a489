"""Converters of functions of floats that TVM lacks, or computes imprecisely close to zero."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax, tirx

from tvm_scatter.problem.reductions import HALVES

from . import arithmetic, cephes, functions
from .arithmetic import is_integral
from .call import TorchCall
from .floats import elementwise
from .ordering import key_of, value_of


def multiply(call: TorchCall) -> Any:
    """``mul``. TVM takes the product with a number that is zero for zero, also of NaN."""
    data, factor = call["self"], call["other"]
    is_zero = isinstance(factor, bool | int | float) and factor == 0
    if is_zero and not is_integral(arithmetic.common_type(data, factor)):
        return elementwise(partial(functions.times_zero, float(factor)), call, "self")
    return arithmetic.multiply(call)


def signbit(call: TorchCall) -> Any:
    """``signbit``."""
    data = call["self"]
    if is_integral(str(data.ty.dtype)):
        number = call.cast(data, "int32") if str(data.ty.dtype) == "bool" else data
        return call.emit(relax.op.less(number, relax.const(0, str(number.ty.dtype))))
    return elementwise(functions.is_negative, call, "self")


def softplus(call: TorchCall) -> Any:
    """``softplus``."""

    def function(value: Any) -> Any:
        beta = tirx.const(float(call["beta"]), value.ty)
        large = value * beta > tirx.const(float(call["threshold"]), value.ty)
        return tirx.Select(large, value, functions.library("log1p", tirx.exp(value * beta)) / beta)

    return elementwise(function, call, "self")


def elu(call: TorchCall) -> Any:
    """``elu``, with the factors that make it ``selu`` and ``celu``."""
    alpha, scale, inner = (float(call[name]) for name in ("alpha", "scale", "input_scale"))

    def function(value: Any) -> Any:
        below = functions.library("expm1", value * tirx.const(inner, value.ty))
        below = below * tirx.const(alpha * scale, value.ty)
        return tirx.Select(
            value > tirx.const(0, value.ty), value * tirx.const(scale, value.ty), below
        )

    return elementwise(function, call, "self")


def nextafter(call: TorchCall) -> Any:
    """``nextafter``, by integers: GPUs take the least numbers for zero."""
    dtype = str(call["self"].ty.dtype)
    if dtype in HALVES:
        raise call.error(f"values must be of type float32 or float64, not {dtype}.")
    return elementwise(_next, call, "self", "other")


def _next(value: Any, towards: Any) -> Any:
    own, other = key_of(value), key_of(towards)
    moved = value_of(
        own + (other > own).astype(str(own.ty)) - (other < own).astype(str(own.ty)), str(value.ty)
    )
    unknown = tirx.any(tirx.isnan(value), tirx.isnan(towards))
    nan = tirx.const(float("nan"), value.ty)
    return tirx.Select(unknown, nan, tirx.Select(own == other, towards, moved))


def frexp(call: TorchCall) -> Any:
    """``frexp``: a mantissa from 0.5 to 1, and the exponent of 2."""
    mantissa = elementwise(functions.mantissa, call, "self")
    exponent = elementwise(functions.exponent, call, "self")
    return call.emit(relax.Tuple([mantissa, call.cast(exponent, "int32")]))


def _of(function: Callable[..., Any], *names: str) -> Callable[[TorchCall], Any]:
    return lambda call: elementwise(function, call, *names)


SPECIAL: dict[str, Callable[[TorchCall], Any]] = {
    **{
        f"{name}.default": _of(partial(functions.library, name), "self")
        for name in ("atanh", "erfc", "expm1", "log1p")
    },
    "angle.default": _of(functions.angle, "self"),
    "atan2.default": _of(partial(functions.library, "atan2"), "self", "other"),
    **{
        f"{name}.default": _of(function, "self")
        for name, function in {
            **{"bessel_i0": cephes.i0, "bessel_i0e": cephes.i0e},
            **{"bessel_i1": cephes.i1, "bessel_i1e": cephes.i1e},
            **{"erfcx": cephes.erfcx, "ndtri": cephes.ndtri},
        }.items()
    },
    "copysign.Scalar": _of(functions.with_sign, "self", "other"),
    "copysign.Tensor": _of(functions.with_sign, "self", "other"),
    "digamma.default": _of(functions.digamma, "self"),
    "elu.default": elu,
    "erf_inv.default": _of(functions.inverse_erf, "self"),
    "log2.default": _of(tirx.log2, "self"),
    "log10.default": _of(tirx.log10, "self"),
    "frexp.default": frexp,
    "lgamma.default": _of(functions.lgamma, "self"),
    "logaddexp.default": _of(functions.log_add_exp, "self", "other"),
    "logaddexp2.default": _of(functions.log_add_exp2, "self", "other"),
    "nextafter.default": nextafter,
    "signbit.default": signbit,
    "softplus.default": softplus,
}
