"""Where the symbolic sizes of a function become known: at a ``match_cast``, if not before.

Sizes are no variables of Relax. So a pass that orders bindings by the variables that they read may
put a binding before the ``match_cast`` that its sizes come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import relax, tirx
from tvm.relax.analysis import definable_tir_vars_in_type, tir_vars_in_type


def sizes_of_parameters(function: relax.Function) -> set[Any]:
    """The sizes that are known when a function begins."""
    return {size for parameter in function.params for size in tir_vars_in_type(parameter.ty)}


def new_sizes(binding: relax.Binding, known: Iterable[Any]) -> set[Any]:
    """The sizes that a binding makes known."""
    if not isinstance(binding, relax.MatchCast):
        return set()
    return set(definable_tir_vars_in_type(binding.ty)) - set(known)


def sizes_read(binding: relax.Binding) -> set[Any]:
    """The sizes that a binding needs to be known."""
    read = {each for each in relax.analysis.all_vars(binding.value) if isinstance(each, tirx.Var)}
    read |= set(tir_vars_in_type(binding.value.ty))
    if isinstance(binding, relax.MatchCast):
        type_ = binding.ty
        read |= set(tir_vars_in_type(type_)) - set(definable_tir_vars_in_type(type_))
    return read


def reads_sizes_too_early(function: relax.Function) -> bool:
    """Whether a dataflow block reads a size before the ``match_cast`` that makes it known."""
    return _too_early(function.body, sizes_of_parameters(function))


def _too_early(sequence: relax.SeqExpr, known: set[Any]) -> bool:
    for block in sequence.blocks:
        missing: set[Any] = set()
        if isinstance(block, relax.DataflowBlock):
            missing = {size for each in block.bindings for size in new_sizes(each, known)}
        for binding in block.bindings:
            if missing and missing & sizes_read(binding):
                return True
            found = new_sizes(binding, known)
            missing -= found
            known |= found
            if isinstance(binding.value, relax.If):
                branches = (binding.value.true_branch, binding.value.false_branch)
                if any(_too_early(branch, set(known)) for branch in branches):
                    return True
    return False
