"""Default schedules for GPUs that take the place of TVM's."""

from __future__ import annotations

from .exponential_sums import ExponentialSums
from .few_columns import FewColumns
from .few_rows import FewRows
from .gather import Divisions, Gather
from .products import Products
from .row_sums import RowSums
from .shared_loop import SharedLoop
from .short_reductions import ShortReductions
from .transposes import Transposes
from .warp_rows import RowReductions, WarpRows
from .whole_reductions import WholeReductions

__all__ = [
    "Divisions",
    "ExponentialSums",
    "FewColumns",
    "FewRows",
    "Gather",
    "Products",
    "RowReductions",
    "RowSums",
    "SharedLoop",
    "ShortReductions",
    "Transposes",
    "WarpRows",
    "WholeReductions",
]
