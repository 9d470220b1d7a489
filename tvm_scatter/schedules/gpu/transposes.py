"""The schedule of functions that transpose, with what they compute of each element beside.

TVM's own takes 128 elements to a block and one to a thread, whose parts of a line of memory lie in
several blocks: 520 us for a transpose of (446 464, 64) numbers of 4 bytes on an H200, where a copy
takes 55.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.options import current_options
from tvm_scatter.schedules.empty_launches import with_body
from tvm_scatter.selection.backend import backend_of

from .gather_form import MOST_NODES, nodes_of
from .transpose_kernel import TransposeKernel, form_of
from .transposition import transposition_of


class Transposes(ScheduleRule):
    """Tiles in shared memory: what is read and what is written lies side by side."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no transpose."""
        if not (backend_of(target).schedules_reads and current_options().transposes):
            return None
        found = transposition_of(func)
        if found is None:
            return None
        form = form_of(found)
        if form.copies * nodes_of(found.value) > MOST_NODES:
            # TVM would compile a thread for minutes.
            return None
        body = with_body(found.function.body, TransposeKernel(found, form).body())
        return s_tir.Schedule(found.function.with_body(body))
