"""The schedule of reductions of whole tensors whose result is computed on.

TVM's own launches a kernel for each element of the tensor there.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.base import ScheduleRule, try_inline_contiguous_spatial
from tvm.target import Target

from tvm_scatter.selection.backend import backend_of

_THREADS = 256


class WholeReductions(ScheduleRule):
    """Each reduction by the threads of one block, each number in between by one thread."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it computes more than single numbers."""
        if not backend_of(target).is_gpu or not isinstance(func.body, s_tir.SBlockRealize):
            return None
        schedule = s_tir.Schedule(func)
        blocks = try_inline_contiguous_spatial(schedule, normalize_prim_func(schedule) or [])
        if blocks is None or len(blocks) < 2 or not all(map(_is_of_one_number, blocks)):
            return None
        for block in blocks:
            _spread(schedule, block)
        return schedule


def _is_of_one_number(block: SBlockInfo) -> bool:
    """Whether a block has one result."""
    return all(
        axis.kind == "R" or (axis.kind == "S" and isinstance(axis.dom, int) and axis.dom == 1)
        for axis in block.iters
    )


def _spread(schedule: s_tir.Schedule, block: SBlockInfo) -> None:
    loops = schedule.get_loops(block.block_rv)
    outer = schedule.add_unit_loop(loops[0] if loops else block.block_rv)
    schedule.bind(outer, "blockIdx.x")
    reduced = [loop for loop, axis in zip(loops, block.iters, strict=False) if axis.kind == "R"]
    if not reduced:
        schedule.bind(schedule.add_unit_loop(block.block_rv), "threadIdx.x")
        return
    fused = schedule.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    _, thread = schedule.split(fused, [None, _THREADS])
    schedule.bind(thread, "threadIdx.x")
