"""Uses what is known of indices: those in range need no check, and unique ones no atomics.

``argsort``, ``arange``, ``x % n`` and the like say which values their results can have, whatever
the inputs of the model are. See :mod:`tvm_scatter.passes.analysis.index_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.own_reads import index_tensors, own_read
from tvm_scatter.lowering.reads import is_read, read_of
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.passes.analysis.bindings import Bindings
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis
from tvm_scatter.passes.analysis.index_claims import claims, claims_of_scatter

from .functions import with_changes
from .report import note


def UseIndexFacts() -> tvm.transform.Pass:
    """The pass."""

    def use(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _using(mod, name.name_hint, function))

    return tvm.transform.module_pass(use, opt_level=0, name="UseIndexFacts")


def _using(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function whose calls say what is known of their indices; ``None`` if nothing is."""
    bindings = [each for each in Bindings(function) if _is_for_us(each.value)]
    if not bindings:
        return None
    known = IndexAnalysis(mod, function)
    found: dict[Any, relax.Call] = {}
    for binding in bindings:
        if is_scatter(binding.value):
            changed = _scatter(ScatterCall.from_call(binding.value), known)
        else:
            changed = _read(binding.value, known, f"{name}.{binding.var.name}")
        if changed is not None:
            found[binding.var] = changed
    return _Rewriter(mod, found).visit_expr(function) if found else None


def _is_for_us(value: Any) -> bool:
    if not (is_scatter(value) or is_read(value)):
        return False
    return strategy_of(value.args[0])[1] is not None


def _scatter(call: ScatterCall, known: IndexAnalysis) -> relax.Call | None:
    """The scatter with what is known of its indices; ``None`` if nothing is."""
    if call.form == COPY_RANGES or call.in_range:
        return None
    found = claims_of_scatter(call, known)
    if found is None or not (found.in_range or found.unique):
        return None
    return call.replace(
        in_range=found.in_range,
        unique=call.unique or found.unique,
        wrap_negative=call.wrap_negative and (found.wraps or not found.in_range),
        known=found.words,
    ).to_call()


def _read(call: relax.Call, known: IndexAnalysis, where: str) -> relax.Call | None:
    """The read without a check; ``None`` if it needs one, or has none already."""
    try:
        read = read_of(call)
    except ScatterError:
        return None
    shape = static_shape(call.args[0])
    if read is None or shape is None or read.is_in_range():
        return None
    extents = [shape[axis] for axis in read.form.addressed]
    found = claims(index_tensors(call), extents, read.check.wrap_negative, known)
    if found is None or not found.in_range:
        return None
    note("index_facts", where, f"reads unchecked: {found.words}")
    data, indices = call.args[0], index_tensors(call)
    return own_read(data, indices, read, wrap_negative=found.wraps, in_range=True)


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, found: Mapping[Any, relax.Call]) -> None:
        super().__init__(mod)
        self.found = found

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.found:
            binding = relax.VarBinding(binding.var, self.found[binding.var])
        super().visit_var_binding_(binding)
