"""The schedule of functions that compute several tensors in one loop."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.lowering.one_loop import ONE_LOOP
from tvm_scatter.schedules.empty_launches import with_body

from .gather_form import Gathering, form_of
from .gather_kernel import Kernel
from .needless_branches import without_needless_branches


class SharedLoop(ScheduleRule):
    """Each place of all tensors by one thread, and in vectors where rows lie side by side."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is none of these."""
        if ONE_LOOP not in func.attrs:
            return None
        found = _computation(func)
        form = form_of(found)
        if form is None:
            return None
        body = with_body(func.body, Kernel(found, form).body())
        return s_tir.Schedule(func.with_body(body))


def _computation(function: tirx.PrimFunc) -> Gathering:
    [block] = [each for each in all_of(function.body, s_tir.SBlock) if each.iter_vars]
    axes = [axis.var for axis in block.iter_vars]
    extents = [axis.dom.extent for axis in block.iter_vars]
    sizes = [int(each) if isinstance(each, tirx.IntImm) else each for each in extents]
    ranges = dict(zip(axes, sizes, strict=True))
    bound = [
        tirx.Bind(each.var, without_needless_branches(each.value, ranges))
        for each in block.body.seq
        if isinstance(each, tirx.Bind)
    ]
    stores = [each for each in block.body.seq if isinstance(each, tirx.BufferStore)]
    return Gathering(function, stores, axes, sizes, bound)
