"""Calls of legalized functions that become calls of one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.ops.called import CALL_TIR, operator_of

from .bindings import Binding


def called_function(binding: Binding, mod: tvm.IRModule) -> tirx.PrimFunc | None:
    """The function that computes the one tensor of a binding in a dataflow block."""
    value = binding.value
    if not binding.fused or operator_of(value) != CALL_TIR:
        return None
    if len(value.args) > 2 or not isinstance(value.ty, relax.TensorType):
        return None
    function = mod[value.args[0]]
    return function if isinstance(function, tirx.PrimFunc) else None


def arguments_of(group: Sequence[Binding]) -> list[Any]:
    """What calls read that none of them computes."""
    inside = {binding.var for binding in group}
    found: list[Any] = []
    for binding in group:
        for argument in binding.value.args[1].fields:
            is_known = argument in inside or any(map(argument.same_as, found))
            if not is_known:
                found.append(argument)
    return found


def says_sizes(group: Sequence[Binding], arguments: Sequence[Any]) -> bool:
    """Whether each variable in a size is itself a size of an argument."""
    types = [each.ty for each in arguments]
    if not all(isinstance(getattr(each, "shape", None), relax.ShapeExpr) for each in types):
        return False
    said = {size for each in types for size in each.shape if isinstance(size, tirx.Var)}
    needed = {
        variable
        for each in [*types, *(binding.value.ty for binding in group)]
        for size in each.shape
        for variable in tirx.analysis.undefined_vars(size)
    }
    return needed <= said
