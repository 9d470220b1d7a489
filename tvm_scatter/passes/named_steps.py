"""Names what TVM emits for an operator of several steps by the variable of its result.

TVM names such steps as if there were no others, so that two variables would have one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .analysis.bindings import Bindings
from .functions import with_changes


def with_named_steps(mod: tvm.IRModule, before: tvm.IRModule) -> tvm.IRModule:
    """A module with other names for the variables that another one, which it was, has not."""
    known = {
        each.var
        for function in before.functions.values()
        if isinstance(function, relax.Function)
        for each in Bindings(function)
    }
    return with_changes(mod, lambda _, function: _renamed(function, known))


def _renamed(function: relax.Function, known: set[Any]) -> relax.Function | None:
    names: dict[Any, str] = {}
    steps: list[Any] = []
    for binding in Bindings(function):
        if binding.var not in known:
            steps += [binding.var] if isinstance(binding.var, relax.DataflowVar) else []
            continue
        result = binding.var.name
        names.update({step: f"{result}_step{at}" for at, step in enumerate(steps, 1)})
        steps = []
    return _Namer(names).visit_expr(function) if names else None


@mutator
class _Namer(PyExprMutator):
    def __init__(self, names: Mapping[Any, str]) -> None:
        super().__init__()
        self._names = names

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        name = self._names.get(binding.var)
        if name is None:
            super().visit_var_binding_(binding)
            return
        named = relax.DataflowVar(name, binding.var.ty)
        value = self.builder_.normalize(self.visit_expr(binding.value))
        self.builder_.emit_normalized(relax.VarBinding(named, value))
        self.set_var_remap(binding.var, named)
