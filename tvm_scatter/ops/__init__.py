"""The Relax operators of this package, with attributes that TVM's own operators lack."""

from .operators import copy_ranges, index_put, scatter_elements, scatter_nd, select_rows

__all__ = ["copy_ranges", "index_put", "scatter_elements", "scatter_nd", "select_rows"]
