"""The schedule of reductions along rows that are read by index.

TVM's own adds up rows in memory, and what it fuses with the sum is computed by one thread for each
row.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.lowering.row_reductions import REDUCES_ROWS, reduction_of
from tvm_scatter.schedules.empty_launches import with_body
from tvm_scatter.selection.backend import backend_of

from .row_form import row_form_of
from .row_kernel import RowKernel


class RowSums(ScheduleRule):
    """A row by some threads of a warp, each of which has several accesses on their way."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no reduction with the rows it reads."""
        if not backend_of(target).schedules_reads or REDUCES_ROWS not in (func.attrs or {}):
            return None
        reduction = reduction_of(func)
        kernel = RowKernel(reduction, row_form_of(reduction))
        return s_tir.Schedule(func.with_body(with_body(func.body, kernel.body())))
