"""Groups of functions in the place of their calls, with the sizes that the callers know.

TVM's ``inline_functions`` gives a group sizes of its own, which nothing ever makes known.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax
from tvm.ir import GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.utils import copy_with_new_vars


def inlined(function: relax.Function, groups: Mapping[GlobalVar, relax.Function]) -> relax.Function:
    """The function with the bindings of some groups in the place of their calls."""
    return _Inliner(groups).visit_expr(function)


@mutator
class _Inliner(PyExprMutator):
    def __init__(self, groups: Mapping[GlobalVar, relax.Function]) -> None:
        super().__init__()
        self.groups = groups

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        group = self.groups.get(call.op) if isinstance(call.op, GlobalVar) else None
        if group is None:
            return call
        group = copy_with_new_vars(group)
        body = group.bind_params(dict(zip(group.params, call.args, strict=True))).body
        for block in body.blocks:
            for binding in block.bindings:
                value = self.builder_.emit(self.visit_expr(binding.value))
                self.set_var_remap(binding.var, value)
        return self.visit_expr(body.body)
