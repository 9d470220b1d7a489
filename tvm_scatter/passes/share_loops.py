"""Computes tensors of one shape in one loop where they are computed from the same, on GPUs.

TVM fuses what leads to one tensor only. So the corners of a cell and their weights, of which a
splat and a read both need all, would each be computed by a kernel of its own, from what others have
written for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from tvm_scatter.lowering.computed_elements import Part
from tvm_scatter.lowering.one_loop import NotOneLoop, OneLoop, slice_of
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

from .analysis.bindings import Bindings
from .analysis.constant_values import computed_from_constants
from .analysis.shared_loops import SharedLoop, shared_loops
from .functions import is_ours_to_change
from .report import note

_NAME, _SLICE = "elements", "slice"
#: The most tensors that a note names.
_NAMED = 6


def share_loops(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which one call computes several tensors.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    target = Target.current(allow_none=True)
    if target is None or not backend_of(target).is_gpu or not current_options().loops:
        return mod
    for name, function in mod.functions.items():
        loops = shared_loops(mod, function) if is_ours_to_change(function) else []
        if loops:
            mod = _Rewriter(mod, loops).rewritten(name, function)
    return mod


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, loops: Sequence[SharedLoop]) -> None:
        super().__init__(mod)
        self._starts = {_first(loop): loop for loop in loops}
        self._name = ""
        #: What TVM has computed by now, where constants are folded, and what nobody asks about.
        self._constant: set[Any] = set()
        #: Tensors that are computed, as results of a call.
        self._fields: dict[Any, relax.Expr] = {}
        #: Tensors that are a part of another.
        self._slices: dict[Any, tuple[Any, Part]] = {}

    def rewritten(self, name: Any, function: relax.Function) -> tvm.IRModule:
        """The module with another function of this name."""
        self._name, self._constant = name.name_hint, computed_from_constants(Bindings(function))
        changed = relax.analysis.remove_all_unused(self.visit_expr(function))
        self.builder_.update_func(name, changed)
        return self.builder_.get()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        loop = self._starts.get(binding.var)
        if loop is not None:
            self._compute(loop)
        if binding.var in self._slices:
            whole, part = self._slices[binding.var]
            binding = relax.VarBinding(binding.var, self._slice(whole, part))
        elif binding.var in self._fields:
            binding = relax.VarBinding(binding.var, self._fields[binding.var])
        super().visit_var_binding_(binding)

    def _compute(self, loop: SharedLoop) -> None:
        """Emit the call that computes the results of a loop."""
        results = list(loop.results.values())
        types = [each.binding.value.ty for each in results]
        written = [(type_, each.written) for type_, each in zip(types, results, strict=True)]
        try:
            function = OneLoop(loop.members, loop.leaves, loop.sizes).function(written)
        except NotOneLoop as reason:
            self._note(loop, "is computed apart from", f": {reason}")
            return
        self._note(loop, "is computed by one kernel with")
        called = self.builder_.add_func(function, _NAME)
        arguments = [self.visit_expr(each) for each in loop.leaves]
        whole = self.builder_.emit(relax.op.call_tir(called, arguments, types))
        # The call of one result has no tuple.
        several = len(results) > 1
        for at, each in enumerate(results):
            self._fields[each.binding.var] = relax.TupleGetItem(whole, at) if several else whole
        for var, (result, part) in loop.sliced.items():
            self._slices[var] = (self._fields[result], part)

    def _note(self, loop: SharedLoop, what: str, reason: str = "") -> None:
        """Say what becomes of a loop."""
        calls = {**loop.inner, **loop.results}
        tensors = sorted([*loop.results, *loop.sliced], key=lambda var: calls[var].binding.at)
        if self._constant.issuperset(tensors):
            return
        first, *others = (each.name for each in tensors)
        named = ", ".join(others[:_NAMED])
        more = len(others) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        note("loops", f"{self._name}.{first}", f"{what} {named}{rest}{reason}")

    def _slice(self, whole: relax.Expr, part: Part) -> relax.Call:
        """The call of a function that reads a part, which TVM fuses with what reads it."""
        tensor = self.builder_.emit(whole)
        called = self.builder_.add_func(slice_of(tensor.ty, part), _SLICE)
        return relax.op.call_tir(called, [tensor], part.tensor.ty)


def _first(loop: SharedLoop) -> Any:
    """The variable of the first tensor that others read."""
    calls = {**loop.results, **{var: loop.inner[var] for var in loop.sliced}}
    return min(calls, key=lambda var: calls[var].binding.at)
