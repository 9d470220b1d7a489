"""Where each variable of a function is defined and how often it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.relax.expr_functor import PyExprVisitor, visitor

from .effects import may_write


@dataclass
class Definitions:
    """The bindings of a function, those of nested functions and branches included.

    Attributes
    ----------
    values : dict
        The expression that each variable is bound to, in the order of the bindings. A variable is
        left out if it is read after a write that may have changed it or its operands.
    uses : dict
        How often each variable is read.
    blocks : dict
        The number of the dataflow block in which each variable is bound, 0 if in none.
    """

    values: dict[Any, Any] = field(default_factory=dict)
    uses: dict[Any, int] = field(default_factory=dict)
    blocks: dict[Any, int] = field(default_factory=dict)

    @staticmethod
    def of(function: relax.Function) -> Definitions:
        """Collect the definitions of a function."""
        definitions = Definitions()
        collector = _Collector(definitions)
        collector.visit_expr(function)
        for var in collector.stale:
            definitions.values.pop(var, None)
        return definitions

    def reaches(self, source: Any, reader: Any) -> bool:
        """Whether the expression bound to ``reader`` may be rewritten to read ``source``."""
        if not isinstance(source, relax.DataflowVar):
            return True
        return self.blocks[source] == self.blocks[reader]

    def reaches_all(self, operands: Any, reader: Any) -> bool:
        """Whether ``reader`` may be rewritten to read all ``operands``."""
        return all(
            self.reaches_all(operand.fields, reader)
            if isinstance(operand, relax.Tuple)
            else self.reaches(operand, reader)
            for operand in operands
        )


@visitor
class _Collector(PyExprVisitor):
    def __init__(self, definitions: Definitions) -> None:
        super().__init__()
        self.definitions = definitions
        self.block = self.last_block = 0
        #: How many bindings so far may have written, and that number when each variable was bound.
        self.writes = 0
        self.bound: dict[Any, int] = {}
        self.stale: set[Any] = set()

    def visit_function_(self, function: relax.Function) -> None:
        # A closure may be called after any write.
        self.writes += 1
        super().visit_function_(function)
        self.writes += 1

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> None:
        self.last_block += 1
        outer, self.block = self.block, self.last_block
        for binding in block.bindings:
            self.visit_binding(binding)
        self.block = outer

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.definitions.values[binding.var] = binding.value
        self.definitions.blocks[binding.var] = self.block
        self.visit_expr(binding.value)
        # Writes of an ``If`` are counted inside of its branches.
        self.writes += may_write(binding.value) and not isinstance(binding.value, relax.If)
        self.bound[binding.var] = self.writes

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        self.definitions.blocks[binding.var] = self.block
        self.visit_expr(binding.value)

    def visit_var_(self, var: relax.Var) -> None:
        self.definitions.uses[var] = self.definitions.uses.get(var, 0) + 1
        if self.bound.get(var, self.writes) != self.writes:
            self.stale.add(var)

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> None:
        self.visit_var_(var)
