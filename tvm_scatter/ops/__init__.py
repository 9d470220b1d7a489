"""The Relax operators of this package, for what TVM's own scatter operators cannot say."""

from .operators import assign, choose, index_put, scatter_elements, scatter_nd

__all__ = ["assign", "choose", "index_put", "scatter_elements", "scatter_nd"]
