"""Expressions of what machines compute, in forms that TVM does not simplify as mathematics.

Where operators are made one expression, TVM takes integers for numbers without limits: it finds
``x + 1 > x`` true, and makes ``x * 2`` of ``x * 6 // 3``. It takes ``x + y - y`` for ``x``,
``x - x`` and ``x * 0`` for 0 and ``x == x`` for true, although sums of floats are rounded, and
floats may be infinite or no numbers. Where operators stand apart it does nothing of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import parts_of
from tvm_scatter.emit.expressions import is_false
from tvm_scatter.emit.kept import MAY_WRAP, RING, kept, kept_value
from tvm_scatter.problem.reductions import FLOATS

from .hidden_loads import HiddenLoads

#: What is exact of integers that wrap around, however it is ordered.
_RING = tuple(RING)
_ORDER = (tirx.Min, tirx.Max)
_DIVIDE = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_COMPARE = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_BITWISE = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor)
#: Of which results an operator of integers is taken for another one. A narrower number counts as a
#: sum: TVM takes it that no cast loses anything.
_MISTAKEN = {
    **dict.fromkeys(_RING, _ORDER),
    **dict.fromkeys((*_ORDER, *_COMPARE), (*_RING, *_DIVIDE)),
    **dict.fromkeys((*_DIVIDE, *_BITWISE), (*_RING, *_ORDER, *_DIVIDE)),
    tirx.Cast: _RING,
}


def as_result(element: Any) -> Any:
    """An element of what an operator computes, so that :func:`as_integers` knows it as one.

    Where a tensor is read is computed as well, but is no result: there nothing wraps around.
    """
    dtype = str(element.ty.dtype)
    # Of unsigned sums that are compared TVM makes differences, which may be below 0.
    may_wrap = dtype in MAY_WRAP or dtype.startswith("uint")
    mistaken = may_wrap and _is_any(element, (*_RING, *_ORDER, *_DIVIDE))
    if not (mistaken or _narrows(element)):
        return element
    return tirx.BitwiseOr(element, tirx.IntImm(dtype, 0))


def _narrows(value: Any) -> bool:
    """Whether it is an integer that a wider one or one of another sign is cast to."""
    if not isinstance(value, tirx.Cast):
        return False
    given, made = str(value.value.ty.dtype), str(value.ty.dtype)
    both = all(each.startswith(("int", "uint")) for each in (given, made))
    return both and not np.can_cast(given, made, "safe")


def _result(expression: Any) -> Any:
    """What :func:`as_result` has been given; ``None`` if it is no such expression."""
    if not isinstance(expression, tirx.BitwiseOr) or not isinstance(expression.b, tirx.IntImm):
        return None
    return expression.a if expression.b.value == 0 else None


def as_integers(expression: Any) -> Any:
    """An expression of elements of placeholders, whose integers wrap around as each operator does.

    Parameters
    ----------
    expression : expression
        Of results, marked as such.
    """

    def with_operands(node: Any) -> Any:
        kinds = _MISTAKEN[type(node)]
        if not any(_result(each) is not None for each in parts_of(node)):
            return node
        if isinstance(node, tirx.Cast):
            kinds = (*kinds, *_ORDER, *_DIVIDE) if _narrows(node) else kinds
            return tirx.Cast(node.ty.dtype, _operand(node.value, kinds))
        sums = isinstance(node, _RING)
        operands = (_operand(each, kinds, sums and _has_number(each)) for each in parts_of(node))
        return type(node)(*operands)

    def unmarked(node: tirx.BitwiseOr) -> Any:
        value = _result(node)
        return node if value is None else value

    known = tvm_ffi.structural_map(expression, [(kind, with_operands) for kind in _MISTAKEN])
    return tvm_ffi.structural_map(known, (tirx.BitwiseOr, unmarked))


def steps_kept(value: Any) -> int:
    """How many kept numbers are computed from each other."""
    inner = max((steps_kept(part) for part in parts_of(value)), default=0)
    return inner + (kept_value(value) is not None)


def _operand(operand: Any, kinds: tuple[type, ...], has_number: bool = False) -> Any:
    value = _result(operand)
    if value is None:
        return operand
    # Of two numbers TVM makes one, which the type may not hold.
    return kept(value) if has_number or _is_any(value, kinds) else value


def _has_number(value: Any) -> bool:
    """Whether a sum or product has a number in it."""
    result = _result(value)
    value = value if result is None else result
    if isinstance(value, _RING):
        return _has_number(value.a) or _has_number(value.b)
    return isinstance(value, tirx.IntImm)


def _is_any(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of some kinds, or chooses what is."""
    result = _result(value)
    value = value if result is None else result
    if isinstance(value, tirx.Select):
        return _is_any(value.true_value, kinds) or _is_any(value.false_value, kinds)
    return isinstance(value, kinds) or (tirx.Add in kinds and _narrows(value))


def as_floats(expression: Any) -> Any:
    """An expression of placeholders, whose floats are those of its operators one after the other.

    To be called when places are simplified: what is read at the same place is the same.
    """
    loads = HiddenLoads()
    hidden = loads.hidden(expression)
    alike = [(tirx.Sub, _unlike), (tirx.EQ, _unlike), (tirx.NE, _unequal), (tirx.Or, _either)]
    zeros = [(kind, _with_zeros) for kind in (tirx.Add, tirx.Mul, tirx.Div)]
    return loads.shown(tvm_ffi.structural_map(hidden, [*alike, *zeros]))


def _unlike(node: Any) -> Any:
    """The same of operands of which TVM does not see what they have in common."""
    if str(node.a.ty.dtype) not in FLOATS:
        return node
    terms = {tvm_ffi.StructuralKey(each) for each in _terms(node.a)}
    if not any(tvm_ffi.StructuralKey(each) in terms for each in _terms(node.b)):
        return node
    if isinstance(node.b, tirx.FloatImm):
        # C has no address of a number, and TVM makes a number of the bits at one.
        return type(node)(kept(node.a), node.b)
    return type(node)(node.a, kept(node.b))


def _unequal(node: Any) -> Any:
    """The same truth by its opposite. On CPUs TVM has nothing that is unequal to a NaN."""
    if str(node.a.ty.dtype) not in FLOATS:
        return node
    return is_false(_unlike(tirx.EQ(node.a, node.b)))


def _terms(value: Any) -> Iterator[Any]:
    """All that an expression is made of."""
    yield value
    for part in parts_of(value):
        yield from _terms(part)


def _with_zeros(node: Any) -> Any:
    """The same with operands of which TVM does not see that they are zero."""
    if str(node.ty.dtype) not in FLOATS:
        return node
    return type(node)(_unknown_zero(node.a), _unknown_zero(node.b))


def _unknown_zero(operand: Any) -> Any:
    is_zero = isinstance(operand, tirx.FloatImm) and operand.value == 0
    return kept(operand) if is_zero else operand


def _either(node: tirx.Or) -> Any:
    """The same truth, of which TVM does not see that it might be always so for numbers."""
    compared = [each for each in _terms(node) if isinstance(each, _COMPARE)]
    if not any(str(each.a.ty.dtype) in FLOATS for each in compared):
        return node
    return tirx.Or(node.a, tirx.Cast("int32", node.b) != 0)
