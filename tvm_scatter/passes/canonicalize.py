"""Rewrites TVM's scatter operators as operators of this package.

This pass runs first, so that later passes need not know TVM's operators. Only
:meth:`~tvm_scatter.ops.scatter_call.ScatterCall.from_call` knows their conventions.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import STOCK_OPERATORS
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.options import current_options

from .functions import with_changes


def Canonicalize() -> tvm.transform.Pass:
    """The pass. It does nothing if the strategy is off or has no implementations for the target."""

    def canonicalize(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if not current_options().enabled:
            return mod
        return with_changes(mod, lambda _, function: _canonical(mod, function))

    return tvm.transform.module_pass(canonicalize, opt_level=0, name="CanonicalizeScatters")


def _canonical(mod: tvm.IRModule, function: relax.Function) -> relax.Function | None:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        function, lambda value: found.append(value) if _is_for_us(value) else None
    )
    return _Canonicalizer(mod).visit_expr(function) if found else None


def _is_for_us(value: Any) -> bool:
    """Whether an expression is a scatter of TVM that this package computes."""
    if not is_scatter(value) or value.op.name not in STOCK_OPERATORS:
        return False
    return strategy_of(value.args[0])[1] is not None


@mutator
class _Canonicalizer(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not _is_for_us(call):
            return call
        scatter = ScatterCall.from_call(call)
        # The operands must be variables: a tuple variable is taken apart into one for each field.
        indices = tuple(map(self._leaf, scatter.indices))
        return scatter.replace(indices=indices).to_call()

    def _leaf(self, index: relax.Expr) -> relax.Expr:
        return self.builder_.emit(index) if isinstance(index, relax.TupleGetItem) else index
