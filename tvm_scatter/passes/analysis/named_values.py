"""What the variables of a module's functions are bound to, and what the variables are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from tvm_scatter.passes.functions import is_ours_to_change


def named_values(mod: IRModule) -> Iterator[tuple[str, Any]]:
    """What the variables of a module's functions are bound to."""
    for name, function in mod.functions.items():
        if is_ours_to_change(function):
            yield from _bound(function.body, name.name_hint)


def _bound(sequence: relax.SeqExpr, path: str) -> Iterator[tuple[str, Any]]:
    """What variables are bound to, those in nested functions and branches too."""
    for binding in (binding for block in sequence.blocks for binding in block.bindings):
        value, where = binding.value, f"{path}.{binding.var.name}"
        if isinstance(value, relax.Function):
            yield from _bound(value.body, where)
        elif isinstance(value, relax.If):
            yield from _bound(value.true_branch, path)
            yield from _bound(value.false_branch, path)
        else:
            yield where, value
