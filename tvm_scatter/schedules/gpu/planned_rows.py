"""The form that a reduction with the rows it reads by index has, before it is scheduled."""

from __future__ import annotations

from typing import Any

import tvm

from tvm_scatter.lowering.row_reductions import REDUCES_ROWS, reduction_of
from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.called import CALL_TIR, operator_of
from tvm_scatter.selection.backend import backend_of

from .row_form import RowForm, row_form_of


def planned_row_form(mod: tvm.IRModule, call: Any) -> RowForm | None:
    """How a reduction is spread over threads; ``None`` for any other call, or on a CPU."""
    if operator_of(call) != CALL_TIR:
        return None
    function, operands = mod[call.args[0]], call.args[1]
    if REDUCES_ROWS not in (function.attrs or {}):
        return None
    target = target_of(operands.fields[0])
    return row_form_of(reduction_of(function)) if backend_of(target).schedules_reads else None
