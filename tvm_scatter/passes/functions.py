"""Helpers for passes that rewrite the functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

#: Attributes that mark functions for an external code generator.
_FOREIGN = ("Codegen", "Primitive")


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
