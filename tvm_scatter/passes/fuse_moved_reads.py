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
from tvm.target import Target

from tvm_scatter.lowering.computed_elements import elements_of
from tvm_scatter.lowering.fusion_patterns import INJECTIVE, OPAQUE, PATTERN, fusion_pattern
from tvm_scatter.lowering.one_reduction import spreads_reductions

from .analysis.bindings import Binding, Bindings
from .analysis.call_groups import arguments_of, called_function, says_sizes
from .functions import is_ours_to_change
from .merged_calls import MergedCall, merged, with_merged_calls
from .reads_apart import reads_for_many
from .report import note

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
    calls = {
        name: _calls(mod, name.name_hint, Bindings(function))
        for name, function in mod.functions.items()
        if is_ours_to_change(function)
    }
    return with_merged_calls(mod, calls)


def _calls(mod: tvm.IRModule, name: str, bindings: Bindings) -> dict[Any, MergedCall]:
    """Reads with what moves the elements that they read, by the variable of the last of these."""
    readers = bindings.readers()
    found: dict[Any, MergedCall] = {}
    for read in reads_for_many(bindings, mod.functions):
        group = [read]
        while (following := _mover(mod, group[-1], readers)) is not None:
            group.append(following)
        arguments = arguments_of(group)
        if len(group) > 1 and says_sizes(group, arguments):
            function = merged(group, arguments, mod).with_attr(PATTERN, OPAQUE)
            found[group[-1].var] = MergedCall(_NAME, function, arguments)
            moved = ", ".join(each.value.args[0].name_hint for each in group)
            note(
                "reductions",
                f"{name}.{group[-1].var.name}",
                f"is read and moved by one kernel: {moved}",
            )
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
