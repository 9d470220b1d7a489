"""What normalises rows computes the rows itself, on GPUs.

TVM fuses a softmax or a normalisation with nothing that comes before it, and what is normalised by
several operators is as many kernels as there are reductions, and one more. So the rows of an
embedding, or the sum with a residual, are written to memory and read again. The schedule of
:mod:`tvm_scatter.schedules.gpu.warp_rows` has a thread keep what it has computed of its row.
"""

from __future__ import annotations

import tvm

from tvm_scatter.lowering.computed_rows import computed_rows

from .analysis.row_groups import RowGroup, row_groups
from .merged_calls import MergedCall, merged, with_merged_calls
from .report import note


def fuse_computed_rows(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which one function computes rows, reduces them and writes the results.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    calls = {
        name: {
            var: call
            for var, group in groups.items()
            if (call := _call(group, mod, f"{name.name_hint}.{var.name}")) is not None
        }
        for name, groups in row_groups(mod).items()
    }
    return with_merged_calls(mod, calls)


def _call(group: RowGroup, mod: tvm.IRModule, where: str) -> MergedCall | None:
    """The call of one function of a group, if it has a schedule."""
    function = merged(group.bindings, group.arguments, mod)
    if computed_rows(function) is None:
        note(
            "reductions",
            where,
            f"has no schedule as one kernel of rows: {group}",
        )
        return None
    note("reductions", where, f"is computed by one kernel of rows: {group}")
    return MergedCall(f"{group.reduces}_of_computed_rows", function, group.arguments)
