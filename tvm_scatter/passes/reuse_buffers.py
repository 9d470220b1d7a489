"""Lets a scatter overwrite its data, where nothing reads the data afterwards.

TVM does not protect data that an in-place call overwrites. So this pass must prove that nothing
reads it later. Without a proof, the scatter copies its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.bounds.alias_check import check_separate
from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.passes.analysis.overwritable import Overwrite, donated_parameters, overwrites

from .functions import is_ours_to_change
from .report import note


def ReuseBuffers(donate: Iterable[str] = ()) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    donate : iterable of str
        Names of parameters that the caller gives away: the function may overwrite them.
    """

    def reuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        names = tuple(donate)
        _check_names(mod, names)
        rewriter = _Rewriter(mod)
        for name, function in mod.functions.items():
            if is_ours_to_change(function):
                rewriter.rewrite(name, function, donated_parameters(mod, name, names))
        return rewriter.result if rewriter.changed else mod

    return tvm.transform.module_pass(reuse, opt_level=0, name="ReuseBuffers")


def _check_names(mod: tvm.IRModule, names: Sequence[str]) -> None:
    functions = {
        name.name_hint: [parameter.name for parameter in function.params]
        for name, function in mod.functions.items()
        if is_ours_to_change(function)
    }
    known = {parameter for parameters in functions.values() for parameter in parameters}
    for name in names:
        if name not in known:
            takes = "; ".join(f"{each} takes {', '.join(functions[each])}" for each in functions)
            raise ScatterError(f"donate: there is no parameter {name!r}; {takes}.")


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.changed = False
        self.found: dict[Any, Overwrite] = {}
        self.function: Any = None
        self.checked: set[Any] = set()

    @property
    def result(self) -> tvm.IRModule:
        return self.builder_.get()

    def rewrite(self, name: Any, function: relax.Function, donated: Sequence[Any]) -> None:
        answer = overwrites(function, donated)
        self.found = {
            var: overwrite for var, overwrite in answer.found.items() if _has_strategy(overwrite)
        }
        for var, overwrite in self.found.items():
            data = overwrite.call.args[0].name
            note("in_place", f"{name.name_hint}.{var.name}", f"overwrites {data}")
        for var, reason in answer.refused.items():
            if donated:
                note("in_place", f"{name.name_hint}.{var.name}", f"copies its data: {reason}")
        if not self.found:
            return
        self.changed = True
        self.function, self.checked = function, set()
        self.builder_.update_func(name, self.visit_expr(function))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        overwrite = self.found.get(binding.var)
        if overwrite is not None:
            binding = relax.VarBinding(binding.var, self._in_place(binding.value, overwrite))
        super().visit_var_binding_(binding)

    def _in_place(self, call: relax.Call, overwrite: Overwrite) -> relax.Call:
        data = self.visit_expr(call.args[0])
        new = [parameter for parameter in overwrite.donated if parameter not in self.checked]
        if new:
            self.checked |= set(new)
            others = [each for each in self.function.params if each not in overwrite.donated]
            data = check_separate(
                self.builder_, new[0].name, data, list(map(self.visit_expr, others))
            )
        in_place = ScatterCall.from_call(call).replace(
            data=data,
            in_place=True,
            temporary=not overwrite.donated,
            earlier=tuple(overwrite.earlier),
        )
        return in_place.to_call()


def _has_strategy(overwrite: Overwrite) -> bool:
    return strategy_of(overwrite.call.args[0])[1] is not None
