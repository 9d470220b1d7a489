"""What is read by index is moved where it is read, also in front of a reduction, on GPUs.

TVM's schedules of reductions expect plain reads, so that a read by index stays apart from one (see
:mod:`.reads_apart`). What only puts the elements that are read in another order, as the heads of a
cache's pages, would then write them to memory once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from tvm_scatter.lowering.computed_elements import elements_of
from tvm_scatter.lowering.fusion_patterns import INJECTIVE, OPAQUE, PATTERN, fusion_pattern
from tvm_scatter.lowering.one_reduction import spreads_reductions

from .analysis.bindings import Binding, Bindings
from .analysis.call_groups import arguments_of, called_function, says_sizes
from .functions import is_ours_to_change
from .merged_calls import merged
from .reads_apart import reads_for_many

#: The name of the functions.
_NAME = "read_and_moved"


def fuse_moved_reads(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which one function reads by index and moves what it reads.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    target = Target.current(allow_none=True)
    if target is None or not spreads_reductions(target):
        return mod
    for name, function in mod.functions.items():
        groups = _groups(mod, Bindings(function)) if is_ours_to_change(function) else {}
        if groups:
            mod = _Merger(mod, groups).merged(name, function)
    return mod


def _groups(mod: tvm.IRModule, bindings: Bindings) -> dict[Any, list[Binding]]:
    """Reads and what moves the elements that they read, by the variable of the last of them."""
    readers = bindings.readers()
    found: dict[Any, list[Binding]] = {}
    for read in reads_for_many(bindings, mod.functions):
        group = [read]
        while (following := _mover(mod, group[-1], readers)) is not None:
            group.append(following)
        if len(group) > 1 and says_sizes(group, arguments_of(group)):
            found[group[-1].var] = group
    return found


def _mover(
    mod: tvm.IRModule, binding: Binding, readers: Mapping[Any, Sequence[Binding]]
) -> Binding | None:
    """What alone reads a tensor, if it only puts its elements in another order."""
    is_inner = isinstance(binding.var, relax.DataflowVar)
    if called_function(binding, mod) is None or not is_inner:
        return None
    alone = readers.get(binding.var, ())
    function = called_function(alone[0], mod) if len(alone) == 1 else None
    if function is None or alone[0].fused != binding.fused:
        return None
    if fusion_pattern(function) != INJECTIVE or len(alone[0].value.args[1].fields) != 1:
        return None
    found = elements_of(alone[0].value, function)
    moves = found is not None and isinstance(found.value, tvm.ir.TensorLoad)
    return alone[0] if moves else None


@mutator
class _Merger(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, groups: Mapping[Any, Sequence[Binding]]) -> None:
        super().__init__(mod)
        self._mod, self._groups = mod, groups

    def merged(self, name: Any, function: relax.Function) -> tvm.IRModule:
        """The module with another function of this name."""
        changed = relax.analysis.remove_all_unused(self.visit_expr(function))
        self.builder_.update_func(name, changed)
        return self.builder_.get()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        group = self._groups.get(binding.var)
        if group is not None:
            arguments = arguments_of(group)
            function = merged(group, arguments, self._mod).with_attr(PATTERN, OPAQUE)
            called = self.builder_.add_func(function, _NAME)
            value = relax.op.call_tir(called, arguments, binding.value.ty)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)
