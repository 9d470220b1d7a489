"""The names of the Relax operators that scatter: those of this package, and TVM's own."""

from __future__ import annotations

SCATTER_ELEMENTS = "relax.tvm_scatter.scatter_elements"
INDEX_PUT = "relax.tvm_scatter.index_put"
SCATTER_ND = "relax.tvm_scatter.scatter_nd"
#: A scatter of ranges whose places are known when it is compiled.
COPY_RANGES = "relax.tvm_scatter.copy_ranges"
#: The operators of this package that scatter.
NAMES = (SCATTER_ELEMENTS, INDEX_PUT, SCATTER_ND, COPY_RANGES)
#: What is left of a scatter once it is known which update each place gets.
SELECT_ROWS = "relax.tvm_scatter.select_rows"
#: Several scatters of one shape that are computed together.
BATCH = "relax.tvm_scatter.batch"
#: TVM's own, and the operator of this package that each equals.
STOCK_OPERATORS = {
    "relax.scatter_elements": SCATTER_ELEMENTS,
    "relax.scatter_nd": SCATTER_ND,
    "relax.index_put": INDEX_PUT,
}
