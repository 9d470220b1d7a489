"""Puts calls of several functions together to the call of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.fusion_patterns import PATTERN, ROOT

from .analysis.bindings import Binding


@dataclass(frozen=True)
class MergedCall:
    """The call of one function in the place of several.

    Attributes
    ----------
    name : str
        What the function is called.
    function : tvm.tirx.PrimFunc
        The function.
    arguments : sequence of relax.Expr
        What it reads.
    """

    name: str
    function: tirx.PrimFunc
    arguments: Sequence[Any]


def with_merged_calls(
    mod: tvm.IRModule, calls: Mapping[Any, Mapping[Any, MergedCall]]
) -> tvm.IRModule:
    """The module with other calls, for each function by the variable that one is bound to."""
    changed = {name: found for name, found in calls.items() if found}
    if not changed:
        return mod
    merger = _Merger(mod)
    for name, found in changed.items():
        merger.merge(name, found)
    return merger.builder_.get()


def merged(
    bindings: Sequence[Binding], arguments: Sequence[Any], mod: tvm.IRModule
) -> tirx.PrimFunc:
    """One function of all, by TVM's own pass for functions that it has put together.

    Parameters
    ----------
    bindings : sequence of Binding
        Calls of functions that TVM has legalized. The last one's result is the function's.
    arguments : sequence of relax.Expr
        What they read that none of them computes: the function's parameters.
    mod : tvm.IRModule
        Where the functions are.
    """
    builder = relax.BlockBuilder()
    functions = {
        called: builder.add_func(mod[called], called.name_hint)
        for called in dict.fromkeys(binding.value.args[0] for binding in bindings)
    }
    inner = _parameters(arguments)
    computed: dict[Any, Any] = {}

    def given(argument: Any) -> Any:
        if argument in computed:
            return computed[argument]
        pairs = zip(arguments, inner, strict=True)
        return next(parameter for each, parameter in pairs if argument.same_as(each))

    with builder.function("merged", inner, {"Primitive": True}, private=True):
        with builder.dataflow():
            for binding in bindings:
                call = binding.value
                operands = [given(each) for each in call.args[1].fields]
                value = relax.op.call_tir(functions[call.args[0]], operands, call.ty)
                computed[binding.var] = builder.emit(value)
            output = builder.emit_output(computed[bindings[-1].var])
        builder.emit_func_output(output)
    whole = builder.get().get_global_var("merged")
    outer = _parameters(arguments)
    with builder.function("main", outer):
        builder.emit_func_output(builder.emit(relax.Call(whole, outer)))
    fused = relax.transform.FuseTIR()(builder.get())
    (function,) = (each for each in fused.functions.values() if isinstance(each, tirx.PrimFunc))
    return function.with_attr(PATTERN, ROOT)


def _parameters(arguments: Sequence[Any]) -> list[relax.Var]:
    return [relax.Var(f"operand{at}", each.ty) for at, each in enumerate(arguments)]


@mutator
class _Merger(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._calls: Mapping[Any, MergedCall] = {}

    def merge(self, name: Any, calls: Mapping[Any, MergedCall]) -> None:
        """Change a function of the module."""
        self._calls = calls
        changed = relax.analysis.remove_all_unused(self.visit_expr(self._mod[name]))
        self.builder_.update_func(name, changed)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = self._calls.get(binding.var)
        if call is not None:
            called = self.builder_.add_func(call.function, call.name)
            value = relax.op.call_tir(called, list(call.arguments), binding.value.ty)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)
