"""Which operator an expression calls."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

CALL_TIR = "relax.call_tir"


def operator_of(value: Any) -> str:
    """The name of the operator that an expression calls; empty if it calls none."""
    named = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return value.op.name if named else ""
