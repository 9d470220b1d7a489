"""A product reads its factors itself where they lie, on GPUs.

TVM fuses a product with what follows it, never with what comes before it. So the layer of a network
that works on edges (EdgeConv, PointNet++) writes a row for each edge to memory, and the product
reads it again. The schedule of :mod:`tvm_scatter.schedules.gpu.products` brings each row to shared
memory once for each tile of its columns. It may as well be read where it comes from. So may a
factor that is transposed first, such as the weight of a linear layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .analysis.product_rows import ProductRows, product_rows
from .merged_calls import merged

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
    if not found:
        return mod
    merger = _Merger(mod)
    for name, products in found.items():
        merger.merge(name, products)
    return merger.builder_.get()


@mutator
class _Merger(PyExprMutator):
    """Puts one call in place of a product and what computes its rows."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._products: Mapping[Any, ProductRows] = {}

    def merge(self, name: Any, products: Mapping[Any, ProductRows]) -> None:
        """Change a function of the module."""
        self._products = products
        changed = relax.analysis.remove_all_unused(self.visit_expr(self._mod[name]))
        self.builder_.update_func(name, changed)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        rows = self._products.get(binding.var)
        if rows is not None:
            name = _OF_ROWS if rows.reads else _OF_TRANSPOSED
            called = self.builder_.add_func(merged(rows.bindings, rows.arguments, self._mod), name)
            value = relax.op.call_tir(called, list(rows.arguments), binding.value.ty)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)
