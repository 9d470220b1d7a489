"""Default schedules for CPUs: products, reductions, and functions of single elements.

TVM's own pipeline for CPUs schedules nothing: its functions run on one core, and its products read
their operands from memory again and again.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax.backend import cpu_generic
from tvm.s_tir import dlight
from tvm.target import Target

from tvm_scatter.lowering.fusion_patterns import OPAQUE, PATTERN
from tvm_scatter.passes.padding_apart import PaddingApart
from tvm_scatter.schedules.guarded import GuardedDefaultSchedule
from tvm_scatter.schedules.initialised import may_reduce_nothing

from .inner import InnerReduction
from .loaded_booleans import with_compared_booleans
from .product import Product
from .row_product import RowProduct
from .spatial import Spatial


class _OfKnownSize(dlight.cpu.Reduction):
    """TVM's rule for softmax and norms. It does not set the result of a reduction of nothing."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        schedule = super().apply(func, target, tunable)
        return None if schedule is None or may_reduce_nothing(func) else schedule


def cpu_schedules() -> tvm.transform.Pass:
    """The pass that schedules what is not scheduled yet. TVM's own rule takes softmax and norms."""
    return GuardedDefaultSchedule(
        RowProduct(), Product(), InnerReduction(), _OfKnownSize(), Spatial()
    )


def scheduled_for_cpu(mod: tvm.IRModule, target: Target | None) -> tvm.IRModule:
    """The module legalized, fused and scheduled, where the target is one that LLVM compiles for."""
    if target is None or target.kind.name != "llvm":
        return mod
    passes = [
        PaddingApart(),
        *cpu_generic.library_dispatch_passes(target),
        *cpu_generic.legalize_passes(target),
        # A reshape is a view only as long as it is not scheduled.
        relax.transform.RewriteDataflowReshape(),
        cpu_schedules(),
        _finished(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(mod)


def _finished() -> tvm.transform.Pass:
    """Mends what the schedules' vectors read, and keeps TVM's pipelines from fusing functions."""

    def finish(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        return with_compared_booleans(function).with_attr(PATTERN, OPAQUE)

    return tirx.transform.prim_func_pass(finish, opt_level=0, name="FinishSchedules")


__all__ = ["cpu_schedules", "scheduled_for_cpu"]
