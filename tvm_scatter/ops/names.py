"""The names of the Relax operators that scatter: those of this package, and TVM's own."""

from __future__ import annotations

SCATTER_ELEMENTS = "relax.tvm_scatter.scatter_elements"
INDEX_PUT = "relax.tvm_scatter.index_put"
SCATTER_ND = "relax.tvm_scatter.scatter_nd"
#: A scatter of ranges whose places are known at compile time.
COPY_RANGES = "relax.tvm_scatter.copy_ranges"
#: The operators of this package that scatter.
NAMES = (SCATTER_ELEMENTS, INDEX_PUT, SCATTER_ND, COPY_RANGES)
#: The second step of a merged chain: for each row, take the update that wins or the data.
SELECT_ROWS = "relax.tvm_scatter.select_rows"
#: Several scatters of one shape in one call.
BATCH = "relax.tvm_scatter.batch"
#: TVM's operators, and the equal operator of this package.
STOCK_OPERATORS = {
    "relax.scatter_elements": SCATTER_ELEMENTS,
    "relax.scatter_nd": SCATTER_ND,
    "relax.index_put": INDEX_PUT,
}
