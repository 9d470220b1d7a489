"""The schedule of products of any rows with matrices of a few columns.

A mixture of experts multiplies its tokens with a matrix of a column for each expert. TVM's own
schedule computes a tile of 64 columns: 24 us for 2048 rows of 512 numbers and 8 columns on an H200,
where cuBLAS takes 13.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.schedules.empty_launches import with_body

from .few_column_form import few_column_product
from .few_column_kernel import Kernel
from .planned_product import schedules_products


class FewColumns(ScheduleRule):
    """Each row read once, for all columns."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no such product."""
        if not schedules_products(target):
            return None
        found = few_column_product(func)
        if found is None:
            return None
        body = with_body(found.function.body, Kernel(found).body())
        return s_tir.Schedule(found.function.with_body(body))
