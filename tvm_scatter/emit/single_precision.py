"""Expressions of bfloat16 as expressions of float32, for code generators that lack bfloat16.

TVM takes a variable bound to a computed bfloat16 for its bits, on targets that compute it in
float32. What is float32 from the first load on has no such variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.problem.reductions import numpy_dtype

from .computed_updates import BRANCH, ComputedUpdates, function_name, parts_of
from .kept import kept, kept_value

_NARROW, _WIDE = "bfloat16", "float32"
#: The most roundings of what was rounded. A rounding uses a number twice, and TVM looks through
#: each use: six take it half a second, nine 25 seconds.
_MOST_ROUNDINGS = 6
#: What is as exact as its operands, which are rounded.
_EXACT = (tvm.ir.TensorLoad, tirx.FloatImm, tirx.Max, tirx.Min, tirx.Select)
#: What makes of rounded operands no NaN but theirs and the processor's own.
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)


def compute_in_single_precision(updates: ComputedUpdates) -> ComputedUpdates:
    """The updates, which are emitted as float32 wherever they were of bfloat16.

    What their last operator computes is reduced as it is, and rounded with the result. So do
    PyTorch's sparse products and ``torch.compile``. Only a cast that the program asks for rounds.
    """
    updates.emitted = in_single_precision
    if _is_narrow(updates.value):
        updates.dtype = _WIDE
        if isinstance(updates.value, tirx.Cast):
            updates.rounding = _rounding(updates.value)
    return updates


def in_single_precision(expression: Any) -> Any:
    """The expression, computed in float32 wherever it is of bfloat16, and rounded after each step.

    The last step is not rounded.

    Parameters
    ----------
    expression : expression
        Of loads, constants, operators, functions, casts and choices.
    """
    return _single(expression, _within_parts)


def takes_too_long(expression: Any) -> bool:
    """Whether TVM compiles for many seconds what rounds one step after the other so often."""
    return _roundings(expression) > _MOST_ROUNDINGS


def _roundings(expression: Any) -> int:
    """The most steps that round what was rounded, apart from the last step."""
    if isinstance(expression, tvm.ir.TensorLoad):
        return 0
    found = 0
    for part in parts_of(expression):
        found = max(found, _roundings(part) + (_rounding(part) is not None))
    return found


#: Makes an operand of an expression.
_Operand = Callable[[Any], Any]


def _single(expression: Any, operand: _Operand) -> Any:
    if isinstance(expression, tvm.ir.TensorLoad):
        return _widened(expression) if _is_narrow(expression) else expression
    if isinstance(expression, tirx.FloatImm):
        return _number(expression) if _is_narrow(expression) else expression
    if isinstance(expression, tirx.Cast):
        return _cast(_dtype(expression), operand(expression.value))
    parts = parts_of(expression)
    if not parts:
        return expression
    return _with_parts(expression, [operand(part) for part in parts])


def _within_parts(expression: Any) -> Any:
    steps = _Steps()
    return steps.around(steps.operand(expression))


class _Steps:
    """The steps that an expression is computed in, of which each has a name.

    Names stand beside each other, in front of what they are used in. TVM looks through what a name
    is for several times, so names within that of a name would take it exponential time.
    """

    def __init__(self, before: _Steps | None = None) -> None:
        self._before = before
        self._named: list[tuple[Any, Any]] = []
        self._found: dict[Any, Any] = {}

    def operand(self, expression: Any) -> Any:
        """What is computed from further: rounded, if it is not exact."""
        round_off = _rounding(expression)
        if round_off is None:
            return self._computed(expression)
        key = tvm_ffi.StructuralKey(expression)
        known = self._known(key)
        if known is None:
            known = round_off(self._computed(expression), self._name)
            self._found[key] = known
        return known

    def around(self, expression: Any) -> Any:
        """An expression, with what it names."""
        for name, value in reversed(self._named):
            expression = tirx.Let(name, value, expression)
        return expression

    def _computed(self, expression: Any) -> Any:
        value = kept_value(expression)
        if value is not None:
            return kept(self.operand(value))
        if isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
            condition, *sides = expression.args
            # What one side reads may not be there on the other one.
            parts = [self.operand(condition), *map(self._side, sides)]
            return _with_parts(expression, parts)
        return _single(expression, self.operand)

    def _side(self, expression: Any) -> Any:
        steps = _Steps(self)
        return steps.around(steps.operand(expression))

    def _name(self, value: Any) -> Any:
        name = tirx.Var(f"bits{len(self._named)}", value.ty)
        self._named.append((name, value))
        return name

    def _known(self, key: Any) -> Any:
        if key in self._found:
            return self._found[key]
        return None if self._before is None else self._before._known(key)


def _rounding(expression: Any) -> Callable[..., Any] | None:
    """What rounds an expression that is computed in float32; ``None`` if it is exact."""
    if isinstance(expression, _EXACT) or not _is_narrow(expression):
        return None
    if kept_value(expression) is not None:
        return None
    return rounded_arithmetic if _is_arithmetic(expression) else rounded


def _is_arithmetic(expression: Any) -> bool:
    """Whether it is a sum, difference, product or quotient of what is rounded."""
    if not isinstance(expression, tirx.Cast):
        return isinstance(expression, _ARITHMETIC)
    value = expression.value
    return isinstance(value, _ARITHMETIC) and all(
        isinstance(each, tirx.FloatImm) or (isinstance(each, tirx.Cast) and _is_narrow(each.value))
        for each in (value.a, value.b)
    )


def _dtype(expression: Any) -> str:
    """The type that an expression is computed in."""
    return _WIDE if _is_narrow(expression) else str(expression.ty.dtype)


def _cast(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def _number(constant: tirx.FloatImm) -> Any:
    """A constant as it stands in memory: TVM keeps it as it was given."""
    rounded_once = np.asarray(float(constant.value)).astype(numpy_dtype(_NARROW))
    return tirx.const(float(rounded_once), _WIDE)


def _widened(load: Any) -> Any:
    """What is loaded as float32. Of a cast in a bound variable TVM makes one of the bits."""
    bits = tirx.Cast("uint32", tirx.reinterpret("uint16", load))
    return tirx.reinterpret(_WIDE, tirx.shift_left(bits, tirx.const(16, "uint32")))


def widened_load(expression: Any) -> Any:
    """The load of bfloat16 that an expression is as float32; ``None`` if it is none.

    Parameters
    ----------
    expression : expression
        Any part of what :func:`in_single_precision` makes.
    """
    if not isinstance(expression, tvm.ir.Call) or function_name(expression) != "reinterpret":
        return None
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.TensorLoad, found.append))
    return next((load for load in found if _is_widened(expression, load)), None)


def _is_widened(expression: Any, load: Any) -> bool:
    return _is_narrow(load) and tvm_ffi.structural_equal(expression, _widened(load))


def _with_parts(expression: Any, parts: list[Any]) -> Any:
    if isinstance(expression, tvm.ir.Call):
        return tirx.call_intrin(_dtype(expression), expression.op, *parts)
    return type(expression)(*parts)


def _is_narrow(expression: Any) -> bool:
    return str(expression.ty.dtype) == _NARROW


def rounded(value: Any, name: Callable[[Any], Any] | None = None) -> Any:
    """A float32 rounded to the nearest bfloat16, ties to even, still as float32.

    A NaN stays one.

    Parameters
    ----------
    value : expression
        The number.
    name : callable, optional
        Gives a value a name and returns it. By default the result has the name in itself.
    """

    def chosen(bits: Any) -> Any:
        quiet = tirx.bitwise_or(bits, _int(0x400000))
        is_nan = tirx.bitwise_and(bits, _int(0x7FFFFFFF)) > _int(0x7F800000)
        # By a mask, because TVM makes a choice between calls a branch.
        mask = _int(0) - tirx.Cast("int32", is_nan)
        nearest = tirx.bitwise_and(tirx.bitwise_not(mask), _nearest(bits))
        return tirx.bitwise_or(tirx.bitwise_and(mask, quiet), nearest)

    return _of_bits(value, chosen, name)


def rounded_arithmetic(value: Any, name: Callable[[Any], Any] | None = None) -> Any:
    """The same for a sum, difference, product or quotient of what is rounded.

    The lower half of a NaN among these is zero, so that rounding leaves it as it is.
    """
    return _of_bits(value, _nearest, name)


def _of_bits(value: Any, change: Callable[[Any], Any], name: Callable[[Any], Any] | None) -> Any:
    # Without a name the value would stand there four times, and its own operands sixteen times.
    bits = tirx.reinterpret("int32", value)
    if name is not None:
        return tirx.reinterpret(_WIDE, change(name(bits)))
    own = tirx.Var("bits", "int32")
    return tirx.reinterpret(_WIDE, tirx.Let(own, bits, change(own)))


def _nearest(bits: Any) -> Any:
    """The bits of a number, rounded to the upper half."""
    odd = tirx.bitwise_and(tirx.shift_right(bits, _int(16)), _int(1))
    return tirx.bitwise_and(bits + _int(0x7FFF) + odd, _int(-0x10000))


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
