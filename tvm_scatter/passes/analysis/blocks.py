"""The blocks of bindings of a function."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.expr_functor import PyExprVisitor, visitor


def blocks_of(function: relax.Function) -> list[list[Any]]:
    """The bindings of each block, nested blocks included."""
    blocks = _Blocks()
    blocks.visit_expr(function)
    return blocks.found


@visitor
class _Blocks(PyExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[Any]] = []

    def visit_binding_block_(self, block: relax.BindingBlock) -> None:
        self.found.append(list(block.bindings))
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> None:
        self.visit_binding_block_(block)
