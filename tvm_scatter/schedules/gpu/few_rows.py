"""The schedule of products of a few rows with matrices whose rows lie in memory one by one.

A decoder multiplies the weights of its attention with the values of its cache. TVM's own schedules
give such a product tiles of which most rows are empty, or few threads: 133 us for 4 rows and 128
matrices of (2048, 128) halfs on an H200, which take 16 to read.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.schedules.empty_launches import with_body

from .few_row_form import few_row_product
from .few_row_kernel import Kernel
from .planned_product import schedules_products


class FewRows(ScheduleRule):
    """Each matrix read once, for all rows that are multiplied with it."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no such product."""
        if not schedules_products(target):
            return None
        found = few_row_product(func)
        if found is None:
            return None
        body = with_body(found.function.body, Kernel(found).body())
        return s_tir.Schedule(found.function.with_body(body))
