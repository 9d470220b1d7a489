"""A product reads its factors itself where they lie, on GPUs.

TVM fuses a product with what follows it, never with what comes before it. So the layer of a network
that works on edges (EdgeConv, PointNet++) writes a row for each edge to memory, and the product
reads it again. The schedule of :mod:`tvm_scatter.schedules.gpu.products` brings each row to shared
memory once for each tile of its columns. It may as well be read where it comes from. So may a
factor that is transposed first, such as the weight of a linear layer.
"""

from __future__ import annotations

import tvm

from .analysis.product_rows import ProductRows, product_rows
from .merged_calls import MergedCall, merged, with_merged_calls
from .report import note

#: The names of the functions. That they begin so, profiles know a product by.
_OF_ROWS, _OF_TRANSPOSED = "matmul_of_read_rows", "matmul_of_transposed"


def fuse_product_rows(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which products read their factors by index or across.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    found = product_rows(mod)
    for name, products in found.items():
        for var, rows in products.items():
            if rows.reads:
                where = f"{name.name_hint}.{var.name}"
                note("products", where, f"reads its rows itself: {rows}")
    calls = {
        name: {var: _call(rows, mod) for var, rows in products.items()}
        for name, products in found.items()
    }
    return with_merged_calls(mod, calls)


def _call(rows: ProductRows, mod: tvm.IRModule) -> MergedCall:
    name = _OF_ROWS if rows.reads else _OF_TRANSPOSED
    return MergedCall(name, merged(rows.bindings, rows.arguments, mod), rows.arguments)
