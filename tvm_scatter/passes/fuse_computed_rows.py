"""What normalises rows computes the rows itself, on GPUs.

TVM fuses a softmax or a normalisation with nothing that comes before it, and what is normalised by
several operators is as many kernels as there are reductions, and one more. So the rows of an
embedding, or the sum with a residual, are written to memory and read again. The schedule of
:mod:`tvm_scatter.schedules.gpu.warp_rows` has a thread keep what it has computed of its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.computed_rows import computed_rows

from .analysis.row_groups import RowGroup, row_groups
from .merged_calls import merged


def fuse_computed_rows(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which one function computes rows, reduces them and writes the results.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    found = row_groups(mod)
    if not found:
        return mod
    merger = _Merger(mod)
    for name, groups in found.items():
        merger.merge(name, groups)
    return merger.builder_.get()


@mutator
class _Merger(PyExprMutator):
    """Puts one call in place of what computes rows."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._groups: Mapping[Any, tuple[RowGroup, tirx.PrimFunc]] = {}

    def merge(self, name: Any, groups: Mapping[Any, RowGroup]) -> None:
        """Change a function of the module."""
        functions = {var: _function(group, self._mod) for var, group in groups.items()}
        self._groups = {
            var: (group, function)
            for var, group in groups.items()
            if (function := functions[var]) is not None
        }
        if self._groups:
            changed = relax.analysis.remove_all_unused(self.visit_expr(self._mod[name]))
            self.builder_.update_func(name, changed)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        found = self._groups.get(binding.var)
        if found is not None:
            group, function = found
            called = self.builder_.add_func(function, f"{group.reduces}_of_computed_rows")
            value = relax.op.call_tir(called, list(group.arguments), binding.value.ty)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)


def _function(group: RowGroup, mod: tvm.IRModule) -> tirx.PrimFunc | None:
    """One function of a group, if it has a schedule."""
    function = merged(group.bindings, group.arguments, mod)
    return None if computed_rows(function) is None else function
