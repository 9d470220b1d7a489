"""Constants under another name, which TVM would free like what a function has computed.

A cast to sizes that the run time knows gives a constant another name. TVM's virtual machine keeps
constants apart from what it can free, and its compiler fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvm_scatter.ops.called import operator_of

from .functions import with_changes

_FREE = "relax.vm.kill_object"


def LivingConstants() -> tvm.transform.Pass:
    """The pass, for modules in which TVM has written what is freed and when."""

    def keep(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, _kept)

    return tvm.transform.module_pass(keep, opt_level=0, name="LivingConstants")


def _kept(_name: Any, function: relax.Function) -> relax.Function | None:
    values = dict(relax.analysis.get_var2val(function))
    casts: list[relax.MatchCast] = []
    tvm_ffi.structural_walk(function, (relax.MatchCast, casts.append))
    values.update({each.var: each.value for each in casts})

    def is_constant(value: Any) -> bool:
        while isinstance(value, relax.Var):
            value = values.get(value)
        return isinstance(value, tvm.ir.GenericConst)

    freed = [value for value in values.values() if operator_of(value) == _FREE]
    if not any(is_constant(value.args[0]) for value in freed):
        return None
    return _Keeper(is_constant).visit_expr(function)


@relax.expr_functor.mutator
class _Keeper(relax.PyExprMutator):
    def __init__(self, is_constant: Callable[[Any], bool]) -> None:
        super().__init__()
        self.is_constant = is_constant

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if operator_of(value) != _FREE or not self.is_constant(value.args[0]):
            super().visit_var_binding_(binding)
