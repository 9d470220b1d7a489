"""The form that a read by index gets by itself, before anything is fused with it."""

from __future__ import annotations

from typing import Any

from tvm import te

from tvm_scatter.lowering.plan_read import ReadPlan
from tvm_scatter.ops.read_forms import read

from .gather_form import GatherForm, form_of, gathering


def form_of_plan(plan: ReadPlan) -> GatherForm | None:
    """How a read is spread over threads; ``None`` if TVM schedules it."""
    if not plan.fuses:
        return None
    check = plan.read.check
    data, *indices = (_placeholder(each) for each in (check.data, *check.indices))
    result = read(plan.read.form, data, indices, plan.read.has_negative(), plan.guard)
    found = gathering(te.create_prim_func([data, *indices, result]))
    return None if found is None else form_of(found)


def _placeholder(operand: Any) -> te.Tensor:
    return te.placeholder(list(operand.ty.shape.values), str(operand.ty.dtype))
