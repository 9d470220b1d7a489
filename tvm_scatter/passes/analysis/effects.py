"""Which expressions may write to a tensor that exists already."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

CALL_TIR_INPLACE = "relax.call_tir_inplace"
#: These operators are not pure, but change no tensor.
_HARMLESS = ("relax.assert_op", "relax.print")
_IN_PLACE = (CALL_TIR_INPLACE, "relax.call_inplace_packed")


def overwrites_operand(value: Any) -> bool:
    """Whether an expression is a call of an operator that says that it overwrites an operand."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    return value.op.name in _IN_PLACE or asks_for(value, "in_place")


def may_write(value: Any) -> bool:
    """Whether evaluating an expression may change an existing tensor."""
    if isinstance(value, relax.If | relax.SeqExpr):
        return True
    if not isinstance(value, relax.Call):
        return False
    if not isinstance(value.op, tvm.ir.Op) or overwrites_operand(value):
        return True
    return not bool(value.op.get_attr("FPurity")) and value.op.name not in _HARMLESS


def asks_for(call: relax.Call, name: str) -> bool:
    """Whether a call of an operator of this package has a true attribute of this name."""
    attrs = call.attrs
    return isinstance(attrs, tvm.ir.DictAttrs) and name in attrs and bool(attrs[name])
