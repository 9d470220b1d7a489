"""The bindings of a function in the order in which they run, branches one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax


@dataclass(frozen=True)
class Binding:
    """One binding.

    Attributes
    ----------
    at : int
        Its position in the order.
    node : relax.Binding
        The binding itself. The result of an ``If`` is bound after both branches.
    reads : frozenset
        The variables that the value reads, not counting reads inside of its branches.
    scope : int
        The sequence that it belongs to: 0 for the function's body, another number for each branch.
    fused : int
        The dataflow block that it belongs to, 0 for none. TVM may fuse and move it inside the
        block.
    """

    at: int
    node: Any
    reads: frozenset[Any]
    scope: int
    fused: int

    @property
    def var(self) -> Any:
        """The variable."""
        return self.node.var

    @property
    def value(self) -> Any:
        """The expression."""
        return self.node.value


class Bindings:
    """The bindings of a function."""

    def __init__(self, function: relax.Function) -> None:
        self.all: list[Binding] = []
        self._scopes = self._blocks = 0
        self._walk(function.body, 0)
        #: The variables that the function returns.
        self.returned = frozenset(relax.analysis.free_vars(function.body.body))

    def __iter__(self) -> Iterator[Binding]:
        return iter(self.all)

    def readers(self) -> dict[Any, list[Binding]]:
        """The bindings that read each variable."""
        found: dict[Any, list[Binding]] = {}
        for binding in self.all:
            for var in binding.reads:
                found.setdefault(var, []).append(binding)
        return found

    def _walk(self, sequence: Any, scope: int) -> None:
        for block in sequence.blocks:
            fused = 0
            if isinstance(block, relax.DataflowBlock):
                self._blocks += 1
                fused = self._blocks
            for each in block.bindings:
                self._bind(each, scope, fused)

    def _bind(self, node: relax.Binding, scope: int, fused: int) -> None:
        value = node.value
        reads = set(relax.analysis.free_vars(value))
        if isinstance(value, relax.If):
            reads = set(relax.analysis.free_vars(value.cond))
            for branch in (value.true_branch, value.false_branch):
                self._scopes += 1
                self._walk(branch, self._scopes)
                reads |= set(relax.analysis.free_vars(branch.body))
        self.all.append(Binding(len(self.all), node, frozenset(reads), scope, fused))
