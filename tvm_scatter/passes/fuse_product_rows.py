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
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.fusion_patterns import PATTERN, ROOT

from .analysis.product_rows import ProductRows, product_rows

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
            called = self.builder_.add_func(_merged(rows, self._mod), name)
            value = relax.op.call_tir(called, list(rows.arguments), binding.value.ty)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)


def _merged(rows: ProductRows, mod: tvm.IRModule) -> tirx.PrimFunc:
    """One function of all, by TVM's own pass for functions that it has put together."""
    builder = relax.BlockBuilder()
    functions = {
        called: builder.add_func(mod[called], called.name_hint)
        for called in dict.fromkeys(binding.value.args[0] for binding in rows.bindings)
    }
    inner = _parameters(rows)
    computed: dict[Any, Any] = {}

    def given(argument: Any) -> Any:
        if argument in computed:
            return computed[argument]
        pairs = zip(rows.arguments, inner, strict=True)
        return next(parameter for each, parameter in pairs if argument.same_as(each))

    with builder.function("product", inner, {"Primitive": True}, private=True):
        with builder.dataflow():
            for binding in rows.bindings:
                call = binding.value
                operands = [given(each) for each in call.args[1].fields]
                value = relax.op.call_tir(functions[call.args[0]], operands, call.ty)
                computed[binding.var] = builder.emit(value)
            output = builder.emit_output(computed[rows.bindings[-1].var])
        builder.emit_func_output(output)
    product = builder.get().get_global_var("product")
    outer = _parameters(rows)
    with builder.function("main", outer):
        builder.emit_func_output(builder.emit(relax.Call(product, outer)))
    fused = relax.transform.FuseTIR()(builder.get())
    (whole,) = (each for each in fused.functions.values() if isinstance(each, tirx.PrimFunc))
    return whole.with_attr(PATTERN, ROOT)


def _parameters(rows: ProductRows) -> list[relax.Var]:
    return [relax.Var(f"operand{at}", each.ty) for at, each in enumerate(rows.arguments)]
