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
from .functions import with_changes


def InDataflow() -> tvm.transform.Pass:
    """The pass. Calls with effects, and branches, stay where they are."""

    def convert(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        converted = relax.transform.ConvertToDataflow()(mod)
        return with_changes(mod, lambda name, function: _changed(function, converted[name]))

    return tvm.transform.module_pass(convert, opt_level=0, name="InDataflow")


def _changed(function: relax.Function, converted: relax.Function) -> relax.Function | None:
    """The converted function; ``None`` if all of it is in dataflow blocks.

    None either of a function that overwrites tensors. TVM would move that within a block.
    """
    bindings = Bindings(function)
    if all(each.fused for each in bindings):
        # TVM would give its results other names.
        return None
    read = frozenset().union(*(each.reads for each in bindings), bindings.returned)
    if any(isinstance(each.node, relax.MatchCast) and each.var not in read for each in bindings):
        # It checks a shape all the same, and TVM would leave it out.
        return None
    return None if any(overwrites_operand(each.value) for each in bindings) else converted
