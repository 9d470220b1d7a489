"""The schedule of reductions along rows, which are read by index or lie side by side.

TVM's own adds up rows in memory, and what it fuses with the sum is computed by one thread for each
row.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.lowering.row_reductions import REDUCES_ROWS, reduction_of
from tvm_scatter.options import current_options
from tvm_scatter.schedules.empty_launches import with_body
from tvm_scatter.selection.backend import backend_of

from .plain_rows import plain_reduction
from .row_form import row_form_of
from .row_kernel import RowKernel


class RowSums(ScheduleRule):
    """A row by some threads of a warp, each of which has several accesses on their way."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no reduction of rows."""
        if not backend_of(target).schedules_reads:
            return None
        if REDUCES_ROWS in (func.attrs or {}):
            reduction = reduction_of(func)
        else:
            found = plain_reduction(func) if current_options().gather else None
            if found is None:
                return None
            func, reduction = found
        kernel = RowKernel(reduction, row_form_of(reduction))
        return s_tir.Schedule(func.with_body(with_body(func.body, kernel.body())))
