"""Reads by index stay apart from reductions, of which TVM's schedules expect plain reads.

Fused with one, a read would be computed by a single thread for each result. Of few elements that is
what a thread does, and so these are read where they are reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_scatter.lowering.fused_reads import IS_READ
from tvm_scatter.lowering.fusion_patterns import (
    BROADCAST,
    INJECTIVE,
    OPAQUE,
    PATTERN,
    REDUCTION,
    fusion_pattern,
)
from tvm_scatter.lowering.one_reduction import one_reduction, spreads_reductions
from tvm_scatter.ops.called import CALL_TIR, operator_of

from .analysis.bindings import Binding, Bindings
from .functions import is_ours_to_change


def reads_apart(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which reads that lead to a reduction of many are fused with nothing.

    TVM fuses a reduction with what is marked to broadcast, and so is what leads to one of few.
    """
    patterns: dict[Any, int] = {}
    for _, function in mod.functions.items():
        if is_ours_to_change(function):
            bindings = Bindings(function)
            found = dict.fromkeys(map(_called, reads_for_many(bindings, mod.functions)), OPAQUE)
            for name, pattern in (*_for_few(bindings, mod.functions).items(), *found.items()):
                patterns[name] = max(pattern, patterns.get(name, 0))
    if not patterns:
        return mod
    result = mod.clone()
    for name, pattern in patterns.items():
        result.update_func(name, mod[name].with_attr(PATTERN, pattern))
    return result


def reads_for_many(bindings: Bindings, functions: Mapping[Any, Any]) -> list[Binding]:
    """The reads that lead to a reduction of many elements, which TVM would fuse them with."""
    to_many: set[Any] = set()
    found: list[Binding] = []
    for binding, function in _calls(bindings, functions):
        pattern = fusion_pattern(function)
        leads = pattern <= INJECTIVE and binding.var in to_many
        if leads and IS_READ in function.attrs:
            found.append(binding)
        elif leads or (pattern == REDUCTION and not _is_of_a_thread(function)):
            to_many |= binding.reads
    return found


def _for_few(bindings: Bindings, functions: Mapping[Any, Any]) -> dict[Any, int]:
    """The patterns of reads that lead to a reduction of few, and of what lies between."""
    to_few: set[Any] = set()
    between: list[tuple[Binding, Any]] = []
    for binding, function in _calls(bindings, functions):
        pattern = fusion_pattern(function)
        if pattern == REDUCTION and _is_of_a_thread(function):
            to_few |= binding.reads
        elif pattern <= INJECTIVE and binding.var in to_few:
            to_few |= binding.reads
            between.append((binding, function))
    read: set[Any] = set()
    found: dict[Any, int] = {}
    for binding, function in reversed(between):
        if IS_READ in function.attrs or binding.reads & read:
            read.add(binding.var)
            found[_called(binding)] = BROADCAST
    return found


def _calls(
    bindings: Bindings, functions: Mapping[Any, Any]
) -> Iterator[tuple[Binding, tirx.PrimFunc]]:
    """The calls of functions that TVM has legalized, from the last one on."""
    for binding in reversed(bindings.all):
        name = _called(binding)
        function = None if name is None else functions.get(name)
        if isinstance(function, tirx.PrimFunc):
            yield binding, function


def _is_of_a_thread(function: tirx.PrimFunc) -> bool:
    """Whether one thread of a GPU reduces what makes a result."""
    target = Target.current(allow_none=True)
    if target is None or not spreads_reductions(target):
        return False
    found = one_reduction(function)
    return found is not None and found.is_short


def _called(binding: Binding) -> Any:
    """The function that a binding calls, or ``None``."""
    value = binding.value
    return value.args[0] if operator_of(value) == CALL_TIR else None
