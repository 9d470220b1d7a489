"""Divides dataflow blocks where a ``match_cast`` makes a size known.

No pass moves bindings from one dataflow block into another. So what reads the size stays behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor

from .analysis.size_order import new_sizes, sizes_of_parameters


def cut_at_sizes(function: relax.Function) -> relax.Function:
    """The function with each ``match_cast`` that makes a size known outside of dataflow blocks."""
    return _Cutter(function).visit_expr(function)


@mutator
class _Cutter(PyExprMutator):
    def __init__(self, function: relax.Function) -> None:
        super().__init__()
        self.known = sizes_of_parameters(function)
        finder = _ReadInOtherParts(set(self.known))
        finder.visit_expr(function)
        self.outputs = finder.found

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        return relax.Var(var.name, var.ty) if var in self.outputs else var

    def visit_seq_expr_(self, sequence: relax.SeqExpr) -> relax.Expr:
        sequence = super().visit_seq_expr_(sequence)
        blocks = [part for block in sequence.blocks for part in _parts(block, self.known)]
        return relax.SeqExpr(blocks, sequence.body)


@visitor
class _ReadInOtherParts(PyExprVisitor):
    """Finds the variables of dataflow blocks that are read outside of the part that binds them."""

    def __init__(self, known: set[Any]) -> None:
        super().__init__()
        self.known = known
        self.found: set[Any] = set()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> None:
        for part in _parts(block, self.known):
            inside = {each.var for each in part.bindings if isinstance(part, relax.DataflowBlock)}
            self.found |= {each.var for each in part.bindings} - inside
            for binding in part.bindings:
                self.found |= set(relax.analysis.free_vars(binding.value)) - inside
        super().visit_dataflow_block_(block)


def _parts(block: relax.BindingBlock, known: set[Any]) -> Iterator[relax.BindingBlock]:
    """The casts of a dataflow block that make sizes known, and dataflow blocks between them.

    ``known`` gets the sizes.
    """
    if not isinstance(block, relax.DataflowBlock):
        yield block
        return
    between: list[Any] = []
    for binding in block.bindings:
        sizes = new_sizes(binding, known)
        if not sizes:
            between.append(binding)
            continue
        known |= sizes
        if between:
            yield relax.DataflowBlock(between)
        yield relax.BindingBlock([binding])
        between = []
    if between:
        yield relax.DataflowBlock(between)
