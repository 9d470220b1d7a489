"""The ``FLegalize`` of elementwise operators that TVM computes wrongly, slowly or not at all.

TVM compiles CUDA with ``--use_fast_math``. There the power of a negative number is not a number,
whatever the exponent. And in vectorised loops, a boolean that all lanes share does not compile if
it is cast, or decides between vectors.

TVM's code for some functions of 16-bit floats does not compile. And it takes the negation of a
comparison for the opposite comparison, as if there were no NaN.

On CPUs, a choice that reads a constant from memory becomes a branch, which makes the whole loop one
of single numbers: TVM evaluates loads on the chosen side only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.backend.utils import BackendDispatcher

from tvm_scatter.emit.expressions import is_false
from tvm_scatter.problem.reductions import HALVES

from .inlined import scalar_of
from .legalizations import put_in_front, stock
from .target import target_of

_POWER, _CAST, _WHERE = "relax.power", "relax.astype", "relax.where"
_NOT = "relax.logical_not"
_EQUAL, _UNLIKE = "relax.equal", "relax.not_equal"
#: Types whose power is computed by single precision.
_FAST = ("float16", "bfloat16", "float32")
#: Operators for which CUDA has no function of 16-bit floats, and most of them CPUs neither.
_WITHOUT_HALVES = (
    *("relax.round", "relax.sinh", "relax.cosh", "relax.asin", "relax.acos"),
    *("relax.asinh", "relax.acosh", "relax.atanh", "relax.tan", "relax.atan", "relax.atan2"),
    *("relax.mod", "relax.floor_mod", "relax.isnan", "relax.isinf", "relax.isfinite"),
)
#: The largest exponent that becomes a product.
_MOST_FACTORS = 4


def install_legalizations() -> None:
    """Put the functions in front of TVM's. Calling it again changes nothing."""
    put_in_front((_POWER,), legalize_power)
    put_in_front((_CAST,), legalize_cast)
    put_in_front((_WHERE,), legalize_where)
    put_in_front((_NOT,), legalize_not)
    put_in_front((_EQUAL, _UNLIKE), legalize_equal)
    put_in_front(_WITHOUT_HALVES, legalize_in_float32)


def legalize_power(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a power that is right for negative numbers, too."""
    base, exponent = call.args
    if not _on_gpu(call):
        return legalize_in_float32(bb, call)
    if str(base.ty.dtype) not in _FAST:
        return stock[_POWER](bb, call)
    factors = _whole_number(exponent)
    if factors is not None and 1 <= factors <= _MOST_FACTORS:
        product = partial(_product, factors=factors)
        return bb.call_te(product, base, primfunc_name_hint="power")
    shape = call.ty.shape
    return bb.call_te(_signed_power, base, exponent, shape, primfunc_name_hint="power")


def legalize_cast(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a cast of booleans as a choice between 0 and 1."""
    [value], dtype = call.args, str(call.attrs.dtype)
    if not _on_gpu(call) or str(value.ty.dtype) != "bool" or dtype == "bool":
        return stock[_CAST](bb, call)

    def cast(value: te.Tensor) -> te.Tensor:
        one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
        return _chosen(value.shape, lambda *at: (value(*at), one, zero), "cast")

    return bb.call_te(cast, value, primfunc_name_hint="cast")


def legalize_where(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a choice between two tensors."""
    if not _on_gpu(call):
        return _where_on_cpu(bb, call)
    if str(call.args[0].ty.dtype) != "bool":
        return stock[_WHERE](bb, call)

    # TVM fuses a product with what reads tensors at its own place, and a number is not read at it.
    numbers = [None, *map(_number_of, call.args[1:])]
    tensors = [each for each, number in zip(call.args, numbers, strict=True) if number is None]

    def where(shape: Any, *given: te.Tensor) -> te.Tensor:
        full = iter([topi.broadcast_to(each, shape) for each in given])
        sides = [next(full) if each is None else _always(each) for each in numbers]
        return _chosen(shape, lambda *at: [each(*at) for each in sides], "where")

    return bb.call_te(where, call.ty.shape, *tensors, primfunc_name_hint="where")


def _number_of(side: Any) -> Any:
    """The number that a side is, if it is one that is written into code of any type."""
    number = scalar_of(side)
    is_written = number is not None and math.isfinite(side.value.numpy().item())
    return number if is_written or str(side.ty.dtype) not in HALVES else None


def _always(number: Any) -> Callable[..., Any]:
    return lambda *_place: number


def legalize_not(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a negation that is right for a comparison with what is not a number, too.

    TVM takes the negation of "less" for "greater or equal", where it computes both at once.
    """
    [value] = call.args
    if str(value.ty.dtype) != "bool":
        return stock[_NOT](bb, call)
    return bb.call_te(_negation, value, primfunc_name_hint="logical_not")


def legalize_equal(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a comparison that is right for what is not a number, too.

    TVM takes any element to be equal to itself, and its code for CPUs no two to be unequal of which
    one is not a number.
    """
    (left, right), operator = call.args, call.op.name
    if "float" not in str(left.ty.dtype) or (operator == _EQUAL and not left.same_as(right)):
        return stock[operator](bb, call)

    def compare_itself(value: te.Tensor) -> te.Tensor:
        unknown = topi.isnan(value if value.dtype == "float64" else topi.cast(value, "float32"))
        return unknown if operator == _UNLIKE else _negation(unknown)

    def unlike(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        return _negation(topi.equal(left, right))

    name = operator.removeprefix("relax.")
    if left.same_as(right):
        return bb.call_te(compare_itself, left, primfunc_name_hint=name)
    return bb.call_te(unlike, left, right, primfunc_name_hint=name)


def legalize_in_float32(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a function of numbers that is computed by single precision for 16-bit floats."""
    operator, dtype = call.op.name, str(call.args[0].ty.dtype)
    if dtype not in HALVES:
        return stock[operator](bb, call)
    name = operator.removeprefix("relax.")
    function = getattr(topi, name)

    def compute(*values: te.Tensor) -> te.Tensor:
        result = function(*(topi.cast(value, "float32") for value in values))
        return result if str(result.dtype) == "bool" else topi.cast(result, dtype)

    return bb.call_te(compute, *call.args, primfunc_name_hint=name)


def _negation(value: te.Tensor) -> te.Tensor:
    return te.compute(value.shape, lambda *at: is_false(value(*at)), name="logical_not")


def _where_on_cpu(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a choice in which constants of one number are part of the code."""
    condition, *sides = call.args
    values = [scalar_of(side) for side in sides]
    if all(each is None for each in values):
        return stock[_WHERE](bb, call)

    def where(condition: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        given = iter(tensors)
        first, second = (next(given) if each is None else _scalar(each) for each in values)
        return topi.where(condition, first, second)

    read = [side for side, value in zip(sides, values, strict=True) if value is None]
    return bb.call_te(where, condition, *read, primfunc_name_hint="where")


def _scalar(value: Any) -> te.Tensor:
    return te.compute((), lambda: value, name="scalar")


def _chosen(shape: Any, parts: Callable[..., Sequence[Any]], name: str) -> te.Tensor:
    """A choice by a condition, in a form of which TVM's vectoriser leaves the condition alone."""
    return te.compute(shape, lambda *at: tirx.if_then_else(*parts(*at)), name=name)


def _on_gpu(call: relax.Call) -> bool:
    """Whether a call of known rank is compiled for a GPU."""
    known = isinstance(call.ty.shape, relax.ShapeExpr)
    return known and BackendDispatcher.is_gpu_target(target_of(call.args[0]))


def _whole_number(exponent: relax.Expr) -> int | None:
    """The value of an exponent that is one whole number, known now and no tensor with axes."""
    if not isinstance(exponent, tvm.ir.GenericConst) or exponent.ty.ndim:
        return None
    value = float(exponent.value.numpy())
    return int(value) if value.is_integer() else None


def _product(base: te.Tensor, factors: int) -> te.Tensor:
    def multiply(*at: tirx.PrimExpr) -> tirx.PrimExpr:
        return math.prod([base(*at)] * (factors - 1), start=base(*at))

    return te.compute(base.shape, multiply, name="power")


def _signed_power(base: te.Tensor, exponent: te.Tensor, shape: relax.Expr) -> te.Tensor:
    base, exponent = (topi.broadcast_to(each, shape) for each in (base, exponent))

    def power(*at: tirx.PrimExpr) -> tirx.PrimExpr:
        wide = (each(*at).astype("float32") for each in (base, exponent))
        return _signed(*wide).astype(base.dtype)

    return te.compute(base.shape, power, name="power")


def _signed(base: tirx.PrimExpr, exponent: tirx.PrimExpr) -> tirx.PrimExpr:
    """A power of the absolute value, with a sign if the exponent is odd."""
    zero, one, two = (tirx.const(value, "float32") for value in (0, 1, 2))
    absolute = tirx.abs(base)
    # The power is computed by logarithms, which say nothing where they are 0 times infinity.
    is_one = tirx.any(absolute == one, exponent == zero)
    power = tirx.Select(is_one, one, tirx.pow(absolute, exponent))
    half = exponent / two
    odd = tirx.all(tirx.floor(exponent) == exponent, tirx.floor(half) != half)
    infinite = absolute == tirx.const(math.inf, "float32")
    unknown = tirx.Select(infinite, power, tirx.const(math.nan, "float32"))
    signed = tirx.Select(odd, zero - power, power)
    signed = tirx.Select(tirx.floor(exponent) == exponent, signed, unknown)
    return tirx.Select(base < zero, signed, power)
