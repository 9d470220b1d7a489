"""Default schedules for GPUs that take the place of TVM's."""

from __future__ import annotations

from .gather import Divisions, Gather
from .products import Products
from .row_sums import RowSums
from .transposes import Transposes
from .whole_reductions import WholeReductions

__all__ = ["Divisions", "Gather", "Products", "RowSums", "Transposes", "WholeReductions"]
