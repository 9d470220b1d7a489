"""Reads by index stay apart from reductions, of which TVM's schedules expect plain reads.

Fused with one, a read would be computed by a single thread for each result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx

from tvm_scatter.lowering.fused_reads import IS_READ
from tvm_scatter.lowering.fusion_patterns import (
    INJECTIVE,
    OPAQUE,
    PATTERN,
    REDUCTION,
    fusion_pattern,
)
from tvm_scatter.ops.called import CALL_TIR, operator_of

from .analysis.bindings import Binding, Bindings
from .functions import is_ours_to_change


def reads_apart(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which reads that lead to a reduction are fused with nothing."""
    apart = {
        name
        for _, function in mod.functions.items()
        if is_ours_to_change(function)
        for name in _before_reductions(Bindings(function), mod.functions)
    }
    if not apart:
        return mod
    result = mod.clone()
    for name in apart:
        result.update_func(name, mod[name].with_attr(PATTERN, OPAQUE))
    return result


def _before_reductions(bindings: Bindings, functions: Mapping[Any, Any]) -> set[Any]:
    """The names of the functions of reads that a reduction would be fused with."""
    leading: set[Any] = set()
    found: set[Any] = set()
    for binding in reversed(bindings.all):
        name = _called(binding)
        function = None if name is None else functions.get(name)
        if not isinstance(function, tirx.PrimFunc):
            continue
        pattern = fusion_pattern(function)
        leads = pattern <= INJECTIVE and binding.var in leading
        if leads and IS_READ in function.attrs:
            found.add(name)
        elif leads or pattern == REDUCTION:
            leading |= binding.reads
    return found


def _called(binding: Binding) -> Any:
    """The function that a binding calls, or ``None``."""
    value = binding.value
    return value.args[0] if operator_of(value) == CALL_TIR else None
