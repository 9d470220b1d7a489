"""Indices of several axes, of which TVM makes offsets into memory.

There TVM's analysis of iterators takes ``(59 - i) // 5 * 5 + (59 - i) % 5`` for ``55 - i``. Here
the loops around such an index are hidden from it. What else TVM simplifies with is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.sym import Analyzer

from .falling_divisions import DIVISIONS, falling_outside, is_understood
from .replaced_pass import ReplacedPass


def _right(stock: tvm.transform.Pass) -> tvm.transform.Pass:
    """TVM's pass, which does not see the loops around indices that it would get wrong."""

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        hidden: dict[tvm.ir.GlobalVar, _Loops] = {}
        for name, function in mod.functions_items():
            if isinstance(function, tirx.PrimFunc):
                loops = _loops_of(function)
                if loops is not None:
                    hidden[name] = loops
                    mod[name] = function.with_body(loops.hidden(function.body))
        mod = stock(mod)
        for name, loops in hidden.items():
            mod[name] = mod[name].with_body(loops.shown(mod[name].body))
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name="FlattenBuffer")


#: TVM's pass, and what is right in its place.
FLATTENING = ReplacedPass("FlattenBuffer", _right)


@dataclass
class _Loops:
    """The loops and threads of a function."""

    extents: dict[Var, Range] = field(default_factory=dict)
    #: What stands for their variables while they are hidden, and the other way round.
    instead: dict[Var, Var] = field(default_factory=dict)
    found: dict[Var, Var] = field(default_factory=dict)

    def hidden(self, body: tirx.Stmt) -> tirx.Stmt:
        """The body, in which indices that TVM would get wrong depend on no loop."""
        for variable in self.extents:
            self.instead[variable] = Var(variable.name, variable.ty)
            self.found[self.instead[variable]] = variable
        return _with_indices(body, self._hide)

    def shown(self, body: tirx.Stmt) -> tirx.Stmt:
        """The body with the loops found again, and their indices simplified."""
        analyzer = Analyzer()
        for variable, extent in self.extents.items():
            analyzer.bind(variable, extent)

        def show(index: Any) -> Any:
            shown = _replaced(index, self.found)
            return index if shown.same_as(index) else analyzer.simplify(shown)

        return _with_indices(body, show)

    def is_wrong(self, index: Any) -> bool:
        """Whether TVM's analysis gets an index wrong."""
        wrong: list[Any] = []

        def visit(division: Any) -> None:
            if not is_understood(division, self.extents):
                wrong.append(division)

        tvm_ffi.structural_walk(index, (DIVISIONS, visit))
        return bool(wrong)

    def _hide(self, index: Any) -> Any:
        if not self.is_wrong(index):
            return index
        return _replaced(falling_outside(index, self.extents), self.instead)


def _loops_of(function: tirx.PrimFunc) -> _Loops | None:
    """The loops of a function in which some division is one that TVM gets wrong."""
    loops = _Loops()

    def loop(node: tirx.For) -> None:
        loops.extents[node.loop_var] = Range.from_min_extent(node.min, node.extent)

    def thread(node: tirx.AttrStmt) -> None:
        if node.attr_key in ("thread_extent", "virtual_thread"):
            loops.extents[node.node.var] = Range.from_min_extent(0, node.value)

    tvm_ffi.structural_walk(function.body, [(tirx.For, loop), (tirx.AttrStmt, thread)])
    return loops if loops.is_wrong(function.body) else None


def _with_indices(body: tirx.Stmt, changed: Callable[[Any], Any]) -> tirx.Stmt:
    """The body with other indices."""

    def load(node: TensorLoad) -> TensorLoad:
        indices = [changed(index) for index in node.indices]
        return node if _are_same(indices, node.indices) else tirx.BufferLoad(node.source, indices)

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        indices = [changed(index) for index in node.indices]
        if _are_same(indices, node.indices):
            return node
        return tirx.BufferStore(node.buffer, node.value, indices)

    return tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])


def _are_same(some: Any, others: Any) -> bool:
    return all(one.same_as(other) for one, other in zip(some, others, strict=True))


def _replaced(index: Any, instead: dict[Var, Var]) -> Any:
    return tvm_ffi.structural_map(index, (Var, lambda variable: instead.get(variable, variable)))
