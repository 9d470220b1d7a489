"""Long chains of elementwise operators are stored in between, on GPUs.

There TVM computes neighbouring elementwise operators as one expression, in which a value that is
used twice stands twice: a clamp uses its operand twice, and again for its second limit, a
hyperbolic tangent sixteen times. And from one choice by what was chosen to the next, TVM takes
several times as long to compile. Three clamps, or four tangents, take it minutes to hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.backend.utils import BackendDispatcher
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from tvm_scatter.emit.expression_length import ExpressionLength
from tvm_scatter.emit.stored_between import READ, Step, stored_between
from tvm_scatter.lowering.fusion_patterns import INJECTIVE, PATTERN, REDUCTION, fusion_pattern
from tvm_scatter.ops.called import CALL_TIR, operator_of

from .analysis.bindings import Binding, Bindings
from .functions import is_ours_to_change


def without_long_expressions(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which nothing is fused to an expression that TVM compiles for minutes.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    target = Target.current(allow_none=True)
    if target is None or not BackendDispatcher.is_gpu_target(target):
        return mod
    found = {
        name: stored
        for name, function in mod.functions.items()
        if is_ours_to_change(function)
        and (stored := stored_variables(Bindings(function), mod.functions))
    }
    if not found:
        return mod
    cutter = _Cutter(mod)
    for name, stored in found.items():
        cutter.cut(name, stored)
    return cutter.builder_.get()


def stored_variables(bindings: Bindings, functions: Mapping[Any, Any]) -> set[Any]:
    """The variables of a function that are stored, so that no expression is too long."""
    steps = {}
    for binding in bindings:
        function = _elementwise(binding, functions)
        if function is not None:
            operands = list(binding.value.args[1].fields)
            steps[binding.var] = Step(operands, partial(_length, function))
    return stored_between(steps)


def _length(function: tirx.PrimFunc, lengths: Sequence[ExpressionLength]) -> ExpressionLength:
    """The length of what a function computes, given those of its operands."""
    known = dict(zip(function.params, lengths, strict=False))

    def store(found: Any) -> None:
        known[found.buffer] = ExpressionLength.of(found, known)

    tvm_ffi.structural_walk(function.body, (tirx.BufferStore, store))
    return known.get(function.params[-1], READ)


def _elementwise(binding: Binding, functions: Mapping[Any, Any]) -> tirx.PrimFunc | None:
    """The function that a binding calls, if TVM fuses it with its neighbours on both sides."""
    value = binding.value
    if operator_of(value) != CALL_TIR or not binding.fused:
        return None
    function = functions.get(value.args[0])
    if not isinstance(function, tirx.PrimFunc):
        return None
    return function if fusion_pattern(function) <= INJECTIVE else None


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
            apart = self._mod[called].with_attr(PATTERN, REDUCTION)
            name = self.builder_.add_func(apart, f"{called.name_hint}_apart")
            value = relax.op.call_tir(name, operands, call.ty, *call.args[2:])
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)
