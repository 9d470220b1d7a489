"""Helpers for passes that rewrite the functions of a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

#: Attributes that mark functions for an external code generator.
_FOREIGN = ("Codegen", "Primitive")
#: Binds an expression in front of the call that is changed, and returns its variable.
Emit = Callable[[Any], Any]
#: What stands in place of a call, given a function that emits what it needs.
Change = Callable[[Emit], relax.Expr]


def is_ours_to_change(function: Any) -> bool:
    """Whether a function is a Relax function that TVM itself compiles."""
    if not isinstance(function, relax.Function):
        return False
    attrs = function.attrs or {}
    return not any(name in attrs for name in _FOREIGN)


def with_changes(
    mod: tvm.IRModule, change: Callable[[tvm.ir.GlobalVar, relax.Function], relax.Function | None]
) -> tvm.IRModule:
    """The module after ``change``, which returns a new function, or ``None`` to keep the old."""
    result = mod
    for name, function in mod.functions.items():
        changed = change(name, function) if is_ours_to_change(function) else None
        if changed is not None:
            result = mod.clone() if result is mod else result
            result.update_func(name, changed)
    return result


def with_values(
    mod: tvm.IRModule, function: relax.Function, changes: Mapping[Any, relax.Expr | Change]
) -> relax.Function:
    """The function with other values of some variables, and without what nothing reads then."""
    changed = _Replacer(mod, changes).visit_expr(function)
    return relax.analysis.remove_all_unused(changed)


def with_found(
    mod: tvm.IRModule,
    find: Callable[[str, relax.Function], Mapping[Any, Any]],
    rewriter: Callable[[tvm.IRModule, Mapping[Any, Any]], Any],
) -> tvm.IRModule:
    """The module after rewriting the functions in which something is found.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    find : callable
        What is found in a function, given its name, by variable.
    rewriter : callable
        A mutator that may add functions, given the module and what is found.
    """
    for name, function in mod.functions.items():
        found = find(name.name_hint, function) if is_ours_to_change(function) else {}
        if found:
            mutator = rewriter(mod, found)
            changed = relax.analysis.remove_all_unused(mutator.visit_expr(function))
            mutator.builder_.update_func(name, changed)
            mod = mutator.builder_.get()
    return mod


def called_functions(mod: tvm.IRModule) -> set[Any]:
    """The names of the Relax functions that other functions of the module call or pass on."""
    found: set[Any] = set()

    def visit(expression: Any) -> None:
        if isinstance(expression, tvm.ir.GlobalVar):
            found.add(expression)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, visit)
    known = mod.functions
    return {name for name in found if isinstance(known.get(name), relax.Function)}


@mutator
class _Replacer(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, changes: Mapping[Any, relax.Expr | Change]) -> None:
        super().__init__(mod)
        self._changes = changes

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        change = self._changes.get(binding.var)
        if change is not None:
            value = change if isinstance(change, relax.Expr) else change(self._emit)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)

    def _emit(self, value: Any) -> Any:
        return self.builder_.emit(self.visit_expr(value))
