"""The schedule of reductions of few elements, such as the sum of an edge's three coordinates.

TVM's own gives each result a block of threads, most of which have nothing to do: the sum of
(1 000 000, 4, 64) numbers along the middle axis takes 6 400 us on an H200, where reading takes 300.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.lowering.one_reduction import one_reduction, spreads_reductions
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

from .unrolled_reduction import in_vectors

_THREADS = 256


class ShortReductions(ScheduleRule):
    """Each result by one thread, or some neighbours if they are made of neighbours in few rows.

    Neighbouring threads reduce neighbours.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it does not reduce few elements once."""
        if not spreads_reductions(target):
            return None
        found = one_reduction(func)
        if found is None or not found.is_short:
            return None
        if backend_of(target).schedules_reads and current_options().gather:
            together = in_vectors(found)
            if together is not None:
                return together
        schedule, block = found.schedule, found.block
        result = found.after or schedule.cache_write(block, 0, "local")
        results = schedule.fuse(*schedule.get_loops(result))
        blocks, thread = schedule.split(results, [None, _THREADS])
        schedule.bind(blocks, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
        try:
            schedule.compute_at(block, thread, preserve_unit_loops=True)
            for at in range(len(schedule.get(block).writes)):
                schedule.set_scope(block, at, "local")
            turns = schedule.fuse(*found.reduced_loops())
            schedule.unroll(turns)
            schedule.decompose_reduction(block, turns)
        except s_tir.ScheduleError:
            # Sizes that are unknown may hide which of the results a thread has.
            return None
        return schedule
