"""Long chains of choices by what was chosen are stored in between, on GPUs.

There TVM computes neighbouring elementwise operators as one expression, in which a value that is
used twice stands twice. A clamp uses its operand twice, and again for its second limit. From one
choice to the next, TVM takes several times as long to compile: three clamps take it hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.backend.utils import BackendDispatcher
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from tvm_scatter.emit.expressions import MOST_CHOICES, choices
from tvm_scatter.lowering.fused_reads import INJECTIVE
from tvm_scatter.ops.called import CALL_TIR, operator_of

from .analysis.bindings import Binding, Bindings
from .functions import is_ours_to_change

_PATTERN = "op_pattern"
#: TVM's number for a reduction: it is fused with what it reads, and with nothing behind it.
_REDUCTION = 3


def choices_apart(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which no more choices than TVM compiles in seconds are fused to one chain.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    target = Target.current(allow_none=True)
    if target is None or not BackendDispatcher.is_gpu_target(target):
        return mod
    cutter = _Cutter(mod)
    for name, function in mod.functions.items():
        if is_ours_to_change(function):
            stored = _stored(Bindings(function), mod.functions)
            if stored:
                cutter.cut(name, stored)
    return cutter.builder_.get()


@dataclass
class _Chains:
    """What elementwise functions have chosen so far.

    Attributes
    ----------
    lengths : dict
        By variable, the choices that its elements are made by, one by the other.
    last : dict
        By variable, the one of the last of these choices.
    """

    lengths: dict[Any, int] = field(default_factory=dict)
    last: dict[Any, Any] = field(default_factory=dict)


def _stored(bindings: Bindings, functions: Mapping[Any, Any]) -> set[Any]:
    """The variables to store, so that no chain of choices between them is too long."""
    stored: set[Any] = set()
    while (var := _too_much(bindings, functions, stored)) is not None:
        stored.add(var)
    return stored


def _too_much(bindings: Bindings, functions: Mapping[Any, Any], stored: set[Any]) -> Any:
    """The variable behind which the first chain goes on that is too long; ``None`` if none is."""
    chains = _Chains()
    for binding in bindings:
        function = _elementwise(binding, functions)
        if function is None or binding.var in stored:
            continue
        operands = binding.value.args[1].fields
        lengths = [chains.lengths.get(each, 0) for each in operands]
        before = max(lengths, default=0)
        last = chains.last.get(operands[lengths.index(before)]) if operands else None
        length = _length(function, lengths)
        if length > MOST_CHOICES and last is not None:
            return last
        chains.lengths[binding.var] = length
        chains.last[binding.var] = binding.var if length > before else last
    return None


def _length(function: tirx.PrimFunc, lengths: list[int]) -> int:
    """The length of the chain of what a function computes, given those of its operands."""
    known = dict(zip(function.params, lengths, strict=False))

    def store(found: Any) -> None:
        known[found.buffer] = choices(found.value, known)

    tvm_ffi.structural_walk(function.body, (tirx.BufferStore, store))
    return known.get(function.params[-1], 0)


def _elementwise(binding: Binding, functions: Mapping[Any, Any]) -> tirx.PrimFunc | None:
    """The function that a binding calls, if TVM fuses it with its neighbours on both sides."""
    value = binding.value
    if operator_of(value) != CALL_TIR or not binding.fused:
        return None
    function = functions.get(value.args[0])
    if not isinstance(function, tirx.PrimFunc):
        return None
    pattern = (function.attrs or {}).get(_PATTERN)
    return function if pattern is not None and int(pattern) <= INJECTIVE else None


@mutator
class _Cutter(PyExprMutator):
    """Lets functions of their own, behind which nothing is fused, compute some variables."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._stored: set[Any] = set()

    def cut(self, name: Any, stored: set[Any]) -> None:
        """Change a function of the module."""
        self._stored = stored
        self.builder_.update_func(name, self.visit_expr(self._mod[name]))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._stored:
            call = binding.value
            called, operands = call.args[:2]
            apart = self._mod[called].with_attr(_PATTERN, _REDUCTION)
            name = self.builder_.add_func(apart, f"{called.name_hint}_apart")
            value = relax.op.call_tir(name, operands, call.ty, *call.args[2:])
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)
