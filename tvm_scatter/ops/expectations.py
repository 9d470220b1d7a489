"""Relax operators that check a rule of a front end at run time and return their operand.

A front end has rules of its own: a source must be exactly as large as a slice, or a mask must have
a value for each true position. Importers check sizes that are known at compile time. These
operators check the rest at run time, and raise an error if the rule is broken. Readers use the
result of the operator, and so run after the check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.ir import Op

from .own_operators import call_of, register_operator
from .read_ops import index_tensors

EXPECT_SIZES = "relax.tvm_scatter.expect_sizes"
EXPECT_COUNT = "relax.tvm_scatter.expect_count"
EXPECT_INDICES = "relax.tvm_scatter.expect_indices"
EXPECT_NUMBERS = "relax.tvm_scatter.expect_numbers"
NAMES = (EXPECT_SIZES, EXPECT_COUNT, EXPECT_INDICES, EXPECT_NUMBERS)

#: Rules for the number of entries and of true positions in a mask, as errors word them.
ENOUGH = "one for each"
EACH_OR_ONE = "one for each, or a single one"
EACH_OR_ONE_TRUE = "one for each, or a single true position"
#: Rules for numbers, as errors word them. The limit follows the words of some.
ASCENDING = "not be less than the one before it"
AT_MOST = "be at most "
EQUAL = "be "
NOT_NEGATIVE = "not be negative"
NOT_ZERO = "not be 0"
#: The number is not zero, where an assertion of the model holds.
ASSERTED = "hold"


def expect_sizes(
    tensor: relax.Expr,
    found: Sequence[Any],
    wanted: Sequence[Any],
    *,
    shape: Sequence[Any] | None = None,
    what: str,
    operator: str,
) -> relax.Expr:
    """Check that two shapes are equal, under every bounds policy, and return ``tensor``.

    Parameters
    ----------
    tensor : relax.Expr
        Any tensor whose readers must run after the check.
    found, wanted : sequence of int or expression
        The shape of an operand, and the shape that it must have.
    shape : sequence of int or expression, optional
        The shape of the result, if the check proves more than the type of ``tensor`` tells.
    what, operator : str
        The names of that operand and of the operator in errors.

    Returns
    -------
    result : relax.Expr
        The tensor itself, not a copy.
    """
    known = tensor.ty.shape if shape is None else relax.ShapeExpr(list(shape))
    attrs = {"what": what, "operator": operator}
    operands = [tensor, relax.ShapeExpr(list(found)), relax.ShapeExpr(list(wanted)), known]
    return call_of(EXPECT_SIZES, operands, attrs)


def expect_count(
    total: relax.Expr, entries: Any, rule: str, *, what: str, operator: str
) -> relax.Expr:
    """Check the number of true positions of a mask, under ``raise`` only, and return ``total``.

    Parameters
    ----------
    total : relax.Expr
        The running count of the mask's true positions: int64 of shape (positions,).
    entries : int or expression
        The number of entries.
    rule : str
        The rule for the number of entries, such as :data:`ENOUGH`.
    what, operator : str
        The names of the entries and of the operator in errors.

    Returns
    -------
    result : relax.Expr
        ``total`` itself, not a copy.
    """
    attrs = {"rule": rule, "what": what, "operator": operator}
    operands = [total, relax.ShapeExpr([entries])]
    return call_of(EXPECT_COUNT, operands, attrs)


def expect_numbers(
    tensor: relax.Expr,
    numbers: Any,
    rule: str,
    *,
    limit: Any = 0,
    what: str,
    operator: str,
) -> relax.Expr:
    """Check that numbers obey a rule, and return ``tensor``.

    Parameters
    ----------
    tensor : relax.Expr
        Any tensor whose readers must run after the check.
    numbers : relax.Expr or expression
        Numbers of type int64, which are checked under ``raise`` only; or one number that the host
        knows, which is checked under every policy.
    rule : str
        The rule, such as :data:`NOT_NEGATIVE`.
    limit : int or expression
        For the rules :data:`AT_MOST` and :data:`EQUAL`; not negative.
    what, operator : str
        The names of a number and of the operator in errors. For :data:`ASSERTED`, ``what`` is the
        whole text.

    Returns
    -------
    result : relax.Expr
        The tensor itself, not a copy.
    """
    if not isinstance(getattr(numbers, "ty", None), relax.TensorType):
        numbers = relax.ShapeExpr([numbers])
    attrs = {"rule": rule, "what": what, "operator": operator}
    return call_of(EXPECT_NUMBERS, [tensor, numbers, relax.ShapeExpr([limit])], attrs)


def expect_indices(read: relax.Call) -> relax.Expr:
    """Check the indices of a read, under ``raise`` only, and return its first index tensor.

    Parameters
    ----------
    read : relax.Call
        A call of an operator that reads by index. It is not evaluated itself.

    Returns
    -------
    result : relax.Expr
        The index tensor itself, not a copy.
    """
    attrs = {"read": read.op.name, "attrs": read.attrs}
    return call_of(EXPECT_INDICES, read.args, attrs)


def read_of_expected(call: relax.Call) -> relax.Call:
    """The call whose indices :func:`expect_indices` checks."""
    return relax.Call(Op.get(str(call.attrs["read"])), list(call.args), attrs=call.attrs["attrs"])


def register() -> None:
    """Register the operators with TVM. Calling it again changes nothing."""
    for name, infer in (
        (EXPECT_SIZES, _infer_sized),
        (EXPECT_COUNT, _infer_first),
        (EXPECT_NUMBERS, _infer_first),
        (EXPECT_INDICES, lambda call, _context: index_tensors(call)[0].ty),
    ):
        register_operator(name, infer)


def _infer_sized(call: relax.Call, _context: Any) -> Any:
    type_ = call.args[0].ty
    return relax.TensorType(call.args[3], type_.dtype, type_.vdevice)


def _infer_first(call: relax.Call, _context: Any) -> Any:
    return call.args[0].ty
