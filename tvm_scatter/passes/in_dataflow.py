"""Puts operators that stand outside of dataflow blocks, for no reason of their own, into such.

TVM's importer makes no dataflow blocks for a model that asserts something of its inputs, such as
``one_hot`` on a CPU, or that has a branch. Nothing outside of them is fused.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .analysis.bindings import Bindings
from .analysis.effects import overwrites_operand
from .functions import is_ours_to_change, with_changes


def InDataflow() -> tvm.transform.Pass:
    """The pass. Calls with effects, and branches, stay where they are."""

    def convert(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        wanted = {
            name
            for name, function in mod.functions.items()
            if is_ours_to_change(function) and _is_to_convert(function)
        }
        if not wanted:
            return mod
        converted = relax.transform.ConvertToDataflow()(mod)
        return with_changes(mod, lambda name, _: converted[name] if name in wanted else None)

    return tvm.transform.module_pass(convert, opt_level=0, name="InDataflow")


def _is_to_convert(function: relax.Function) -> bool:
    """Whether a function has operators outside of dataflow blocks that TVM may put into some."""
    bindings = Bindings(function)
    if all(each.fused for each in bindings):
        # TVM would give its results other names.
        return False
    read = frozenset().union(*(each.reads for each in bindings), bindings.returned)
    if any(isinstance(each.node, relax.MatchCast) and each.var not in read for each in bindings):
        # It checks a shape all the same, and TVM would leave it out.
        return False
    # What overwrites a tensor TVM would move within a block.
    return not any(overwrites_operand(each.value) for each in bindings)
