"""The Relax operators of this package, for what TVM's own scatter operators cannot say."""

from .operators import copy_ranges, index_put, scatter_elements, scatter_nd, select_rows

__all__ = ["copy_ranges", "index_put", "scatter_elements", "scatter_nd", "select_rows"]
