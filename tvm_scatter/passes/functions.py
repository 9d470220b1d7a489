"""The functions of a module that passes change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

#: Functions that another compiler takes as they are.
_FOREIGN = ("Codegen", "Primitive")


def is_ours_to_change(function: Any) -> bool:
    """Whether a function of a module is Relax and not meant for another compiler."""
    if not isinstance(function, relax.Function):
        return False
    attrs = function.attrs or {}
    return not any(name in attrs for name in _FOREIGN)


def with_changes(
    mod: tvm.IRModule, change: Callable[[tvm.ir.GlobalVar, relax.Function], relax.Function | None]
) -> tvm.IRModule:
    """A module with what ``change`` makes of its functions; ``None`` leaves one as it is."""
    result = mod
    for name, function in mod.functions.items():
        changed = change(name, function) if is_ours_to_change(function) else None
        if changed is not None:
            result = mod.clone() if result is mod else result
            result.update_func(name, changed)
    return result


def called_functions(mod: tvm.IRModule) -> set[Any]:
    """The Relax functions that are called or passed on inside of the module, by their names."""
    found: set[Any] = set()

    def visit(expression: Any) -> None:
        if isinstance(expression, tvm.ir.GlobalVar):
            found.add(expression)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, visit)
    known = mod.functions
    return {name for name in found if isinstance(known.get(name), relax.Function)}
