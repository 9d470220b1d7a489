"""Relax operators that hand a tensor on, and raise if what a front end promises does not hold.

Front ends know rules that a scatter does not: that a source is exactly as large as a slice, or that
there is an entry for each true position of a mask. What is known at compile time they check
themselves; the rest is checked here, in the way of the data, so that nothing reads it before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

EXPECT_SIZES = "relax.tvm_scatter.expect_sizes"
EXPECT_COUNT = "relax.tvm_scatter.expect_count"
NAMES = (EXPECT_SIZES, EXPECT_COUNT)

#: How many entries there must be for the true positions of a mask, as errors say it.
ENOUGH = "one for each"
EACH_OR_ONE = "one for each, or a single one"
EACH_OR_ONE_TRUE = "one for each, or a single true position"


def expect_sizes(
    tensor: relax.Expr,
    found: Sequence[Any],
    wanted: Sequence[Any],
    *,
    shape: Sequence[Any] | None = None,
    what: str,
    operator: str,
) -> relax.Expr:
    """Hand a tensor on if sizes are what they must be; checked under every bounds policy.

    Parameters
    ----------
    tensor : relax.Expr
        Any tensor.
    found, wanted : sequence of int or expression
        The shape that something has, and the one that it must have.
    shape : sequence of int or expression, optional
        What the shape of the result is known to be afterwards; that of ``tensor`` by default.
    what, operator : str
        What errors call that something, and the operator.

    Returns
    -------
    result : relax.Expr
        The tensor itself, not a copy.
    """
    known = tensor.ty.shape if shape is None else relax.ShapeExpr(list(shape))
    attrs = {"what": what, "operator": operator}
    operands = [tensor, relax.ShapeExpr(list(found)), relax.ShapeExpr(list(wanted)), known]
    return relax.Call(Op.get(EXPECT_SIZES), operands, attrs=_attributes(attrs))


def expect_count(
    total: relax.Expr, entries: Any, rule: str, *, what: str, operator: str
) -> relax.Expr:
    """Hand a running count on if its last number fits; checked under the policy ``raise`` only.

    Parameters
    ----------
    total : relax.Expr
        How many positions of a mask are true up to each: int64 of shape (positions,).
    entries : int or expression
        How many entries there are.
    rule : str
        How many entries there must be, such as :data:`ENOUGH`.
    what, operator : str
        What errors call the entries, and the operator.

    Returns
    -------
    result : relax.Expr
        ``total`` itself, not a copy.
    """
    attrs = {"rule": rule, "what": what, "operator": operator}
    operands = [total, relax.ShapeExpr([entries])]
    return relax.Call(Op.get(EXPECT_COUNT), operands, attrs=_attributes(attrs))


def register() -> None:
    """Register the operators with TVM; harmless when they are there already."""
    for name, infer in ((EXPECT_SIZES, _infer_sized), (EXPECT_COUNT, _infer_counted)):
        if name not in Op.list_op_names():
            tvm.ir.register_op_attr(name, "FPurity", True)
            tvm.ir.register_op_attr(name, "FInferType", infer)


def _attributes(attrs: dict[str, str]) -> Any:
    return tvm.ir.make_node("ir.DictAttrs", **attrs)


def _infer_sized(call: relax.Call, _context: Any) -> Any:
    type_ = call.args[0].ty
    return relax.TensorType(call.args[3], type_.dtype, type_.vdevice)


def _infer_counted(call: relax.Call, _context: Any) -> Any:
    return call.args[0].ty
