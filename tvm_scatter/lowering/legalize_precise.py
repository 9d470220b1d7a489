"""The ``FLegalize`` of functions of which TVM's code loses most digits of some numbers.

TVM compiles CUDA with ``--use_fast_math``. There the sine and the cosine are precise to 21 bits
behind the point, so that small sines have few digits and those of large angles none, and the
hyperbolic tangent has 11 bits. On CPUs TVM computes that by exponentials, whose difference is
nothing close to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.backend.utils import BackendDispatcher

from tvm_scatter.emit.numbers import number_like, polynomial, ratio
from tvm_scatter.problem.reductions import HALVES

from .legalizations import put_in_front, stock
from .target import target_of

_TANH, _GELU = "relax.tanh", "relax.nn.gelu_tanh"
_SIN, _COS = "relax.sin", "relax.cos"
_RSQRT = "relax.rsqrt"
_ERF_GELU, _SILU, _LEAKY = "relax.nn.gelu", "relax.nn.silu", "relax.nn.leakyrelu"
#: tanh(x) / x - 1, divided by the square of x, which is at most the square of the limit: of float32
#: a polynomial of the square, of float64 a quotient. From Cephes.
_LIMIT = 0.625
_TANH_32 = (
    *(-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2),
    *(1.33314422036e-1, -3.33332819422e-1),
)
_TANH_64 = (
    (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3),
    (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3),
)
#: The same for the sine, up to a quarter of pi.
_SIN_32 = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)

Function = Callable[[Any], Any]


def install_legalizations() -> None:
    """Put the functions in front of TVM's. Calling it again changes nothing."""
    put_in_front((_TANH,), lambda bb, call: _emit(bb, call, tanh))
    put_in_front((_GELU,), lambda bb, call: _emit(bb, call, _gelu))
    put_in_front((_SIN,), lambda bb, call: _emit_on_gpu(bb, call, _sine))
    put_in_front((_COS,), lambda bb, call: _emit_on_gpu(bb, call, _cosine))
    put_in_front((_ERF_GELU,), lambda bb, call: _emit_of_halves(bb, call, _erf_gelu))
    put_in_front((_SILU,), lambda bb, call: _emit_of_halves(bb, call, _silu))
    put_in_front((_LEAKY,), _legalize_leaky_relu)
    put_in_front((_RSQRT,), _legalize_rsqrt)


def _emit_on_gpu(bb: relax.BlockBuilder, call: relax.Call, function: Function) -> relax.Expr:
    """The function in single precision on a GPU; others are right as they are."""
    on_gpu = BackendDispatcher.is_gpu_target(target_of(call.args[0]))
    if not on_gpu or str(call.args[0].ty.dtype) == "float64":
        return stock[call.op.name](bb, call)
    return _emit(bb, call, function)


def _emit_of_halves(bb: relax.BlockBuilder, call: relax.Call, function: Function) -> relax.Expr:
    """The function in single precision of 16-bit floats, of which TVM rounds every step."""
    if str(call.args[0].ty.dtype) not in HALVES:
        return stock[call.op.name](bb, call)
    return _emit(bb, call, function)


def _legalize_rsqrt(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """What TVM makes of it for a CPU, where it makes no vectors of the function itself."""
    if BackendDispatcher.is_gpu_target(target_of(call.args[0])):
        return stock[_RSQRT](bb, call)
    return _emit(bb, call, lambda value: number_like(1, value) / tirx.sqrt(value))


def _legalize_leaky_relu(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The number or its product with a slope, which CPUs need not round to 16 bits as well.

    GPUs multiply two 16-bit floats by one instruction.
    """
    [value], slope = call.args, call.attrs.alpha
    on_gpu = BackendDispatcher.is_gpu_target(target_of(value))
    if on_gpu or str(value.ty.dtype) not in HALVES:
        return stock[_LEAKY](bb, call)

    def compute(values: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            value = values(*at)
            product = value.astype("float32") * tirx.const(slope, "float32")
            return tirx.Select(number_like(0, value) < value, value, product.astype(values.dtype))

        return te.compute(values.shape, element, name="leaky_relu")

    return bb.call_te(compute, value, primfunc_name_hint="leaky_relu")


def _emit(bb: relax.BlockBuilder, call: relax.Call, function: Function) -> relax.Expr:
    name = call.op.name.rpartition(".")[2]

    def compute(values: te.Tensor) -> te.Tensor:
        wide = "float32" if values.dtype in HALVES else values.dtype

        def element(*at: Any) -> Any:
            return function(values(*at).astype(wide)).astype(values.dtype)

        return te.compute(values.shape, element, name=name)

    return bb.call_te(compute, call.args[0], primfunc_name_hint=name)


def tanh(value: Any) -> Any:
    """The hyperbolic tangent of a number of type float32 or float64."""
    one, two = number_like(1, value), number_like(2, value)
    square, size = value * value, tirx.abs(value)
    is_double = str(value.ty) == "float64"
    more = ratio(_TANH_64, square) if is_double else polynomial(_TANH_32, square)
    large = one - two / (tirx.exp(size + size) + one)
    large = tirx.Select(value < number_like(0, value), -large, large)
    return tirx.Select(size < number_like(_LIMIT, value), value * (one + square * more), large)


def _gelu(value: Any) -> Any:
    """The activation of that name, in its form with a hyperbolic tangent."""
    one = number_like(1, value)
    inner = value * (one + number_like(0.044715, value) * value * value)
    factor = number_like(math.sqrt(2 / math.pi), value)
    return number_like(0.5, value) * value * (one + tanh(factor * inner))


def _erf_gelu(value: Any) -> Any:
    """The activation of that name, in its form with an error function."""
    half, root = number_like(0.5, value), number_like(math.sqrt(0.5), value)
    return half * value * (number_like(1, value) + tirx.erf(value * root))


def _silu(value: Any) -> Any:
    """The activation of that name, also called swish."""
    return value / (number_like(1, value) + tirx.exp(-value))


def _sine(value: Any) -> Any:
    square = value * value
    small = value * (number_like(1, value) + square * polynomial(_SIN_32, square))
    is_small = tirx.abs(value) < number_like(math.pi / 4, value)
    return tirx.Select(is_small, small, tirx.sin(_within_a_turn(value)))


def _cosine(value: Any) -> Any:
    return tirx.cos(_within_a_turn(value))


def _within_a_turn(angle: Any) -> Any:
    """The angle without whole turns, which fast functions want."""
    wide = angle.astype("float64")
    turns = tirx.nearbyint(wide * tirx.const(1 / (2 * math.pi), "float64"))
    return (wide - turns * tirx.const(2 * math.pi, "float64")).astype(str(angle.ty))
