"""Puts calls of several functions together to the call of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.lowering.fusion_patterns import PATTERN, ROOT

from .analysis.bindings import Binding


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
