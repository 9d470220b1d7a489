"""Lets a reduction along rows compute the rows, where they are read by index.

Attention over a graph takes a number for each edge: the product of a query and a key, or a sum
along what is computed from both. Queries, keys and what is computed from them take far more memory
for all edges than for all nodes. This pass makes them a part of the sum, in one function for each.

It runs before :func:`FuseProducers`, so that a sum is no reader of what a scatter reads as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.computed_rows import BLOCK_ROW, SHORTEST_ROW
from tvm_scatter.lowering.fusion_patterns import OPAQUE, PATTERN
from tvm_scatter.lowering.inlined import Inliner, NotInlined, leaves_of, operands_of
from tvm_scatter.lowering.one_reduction import spreads_reductions
from tvm_scatter.lowering.row_reductions import (
    REDUCES_ROWS,
    check_rows,
    is_row_reduction,
    reduced_length,
    reduction_of,
    summed,
)
from tvm_scatter.lowering.target import strategy_of, target_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.normalised_rows import is_of_normalised_rows
from tvm_scatter.passes.analysis.row_producers import row_producers

from .checks_in_front import Checks
from .functions import with_found
from .report import note


@dataclass(frozen=True)
class _Fused:
    """A reduction with its rows.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        Computes the result from the leaves.
    leaves : list of relax.Expr
        The tensors that it reads.
    checked : list of relax.Call
        The reads in it whose bad indices must be reported.
    divisor : int
        What the result is divided by.
    """

    function: Any
    leaves: list[Any]
    checked: list[relax.Call]
    divisor: int


def FuseRowReductions() -> tvm.transform.Pass:
    """The pass."""

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_found(mod, _found, _Rewriter)

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseRowReductions")


def _found(name: str, function: relax.Function) -> dict[Any, _Fused]:
    """The reductions that compute their rows, by variable."""
    bindings = Bindings(function)
    reductions = [each for each in bindings if _is_candidate(each)]
    readers = bindings.readers() if reductions else {}
    found: dict[Any, _Fused] = {}
    for reduction in reductions:
        producers = row_producers(bindings, readers, reduction)
        where = f"{name}.{reduction.var.name}"
        if _is_kept(bindings, reduction, producers.taken):
            note("row_sums", where, "is computed with the rows that are normalised")
            continue
        try:
            if producers.refused:
                raise NotInlined(producers.refused)
            found[reduction.var] = _fused(reduction, producers.taken, producers.checked)
        except NotInlined as reason:
            if producers.reads_by_index:
                note("row_sums", where, f"reads its rows from memory: {reason}")
            continue
        names = ", ".join(
            operator_of(each.value).removeprefix("relax.") for each in producers.taken
        )
        note("row_sums", where, f"computes its rows itself: {names}")
    return found


def _is_candidate(binding: Binding) -> bool:
    if not binding.fused or not is_row_reduction(binding.value):
        return False
    strategy, dtype = strategy_of(binding.value.args[0])[1], str(binding.var.ty.dtype)
    if strategy is None or not strategy.backend.sums_rows_under(current_options()):
        return False
    return dtype in strategy.backend.fuses


def _is_kept(bindings: Bindings, reduction: Binding, taken: Sequence[Binding]) -> bool:
    """Whether a kernel that normalises the rows computes and keeps them, and reduces them too."""
    if not spreads_reductions(target_of(reduction.value.args[0])):
        return False
    length = reduced_length(reduction.value)
    if length is None or not SHORTEST_ROW <= length <= BLOCK_ROW:
        return False
    return is_of_normalised_rows(bindings, reduction, taken)


def _fused(reduction: Binding, taken: Sequence[Binding], checked: Sequence[Binding]) -> _Fused:
    """A reduction as a function of what its rows are computed from.

    Raises
    ------
    NotInlined
        If an element of a row is not one expression, or of too many tensors, or is better read.
    """
    call, divisor = summed(reduction.value)
    calls = {each.var: each.value for each in taken}
    leaves = leaves_of(calls, operands_of(call))
    inliner = Inliner(leaves)
    for var, value in calls.items():
        inliner.add(var, value)
    inliner.add(reduction.var, call)
    function = inliner.reduction(reduction.var)
    check_rows(reduction_of(function), target_of(call.args[0]))
    # Sizes of its own, which its callers do not share.
    function = tvm.ir.load_json(tvm.ir.save_json(function))
    function = function.with_attr(PATTERN, OPAQUE).with_attr(REDUCES_ROWS, 1)
    return _Fused(function, leaves, [each.value for each in checked], divisor)


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, found: Mapping[Any, _Fused]) -> None:
        super().__init__(mod)
        self.found = found
        self.checks = Checks(self)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        self.checks = Checks(self)
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        fused = self.found.get(binding.var)
        if fused is not None:
            binding = relax.VarBinding(binding.var, self._call(fused, binding))
        super().visit_var_binding_(binding)

    def _call(self, fused: _Fused, binding: relax.VarBinding) -> relax.Expr:
        leaves = self.checks.before(fused.leaves, fused.checked)
        name = self.builder_.add_func(fused.function, f"{operator_of(binding.value)[6:]}_of_rows")
        call = relax.call_tir(name, leaves, binding.var.ty)
        if fused.divisor == 1:
            return call
        dtype = str(binding.var.ty.dtype)
        result = self.builder_.emit(self.visit_expr(call))
        return relax.op.divide(result, relax.const(fused.divisor, dtype))
