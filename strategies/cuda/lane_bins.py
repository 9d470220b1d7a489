"""Lane bins: each lane has a copy of a small output in shared memory, so nothing is atomic."""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .shared_bins import output_bytes, reduce_by_blocks
from .steps import contention, stages

_LANES = 32
#: Blocks of one warp with 32 KB of bins: six fit a multiprocessor of an H200. This is not a knob,
#: because the number of partial sums affects how the result is rounded: GPUs of as many
#: multiprocessors give equal bits.
_BLOCKS_PER_MULTIPROCESSOR = 6
#: How many times the time of a sum an extreme takes.
_COMPARED = 1.5


class LaneBins(Implementation):
    """Blocks of one warp. Each lane has its own bins, which are merged in a fixed order."""

    name = "lane_bins"
    takes_empty = False
    accumulates_wide = True
    deterministic = True
    fuses = True
    summary = "histograms of up to some hundred bins; reproducible"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.reduces.merges:
            return f"it cannot combine partial results of {problem.reduction!r}"
        if not problem.data_size.is_static or not problem.width.is_one:
            return "it takes single elements and an output of known size"
        needed = output_bytes(problem) * _LANES
        limit = shared_memory_limit(target)
        if needed > limit:
            return f"bins for every lane take {needed} bytes and a block has {limit}"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"unroll": (16, 8, 32)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _blocks(target) * output_bytes(problem)

    def cost(self, work: Work, config: Config) -> Terms:
        bins = work.data_size * accumulate_bytes(work.problem.data_dtype)
        blocks = _BLOCKS_PER_MULTIPROCESSOR * work.machine.multiprocessors
        # Warps wait for shared memory, the more the fewer blocks fit a multiprocessor.
        fitting = max(work.machine.shared_bytes // max(_LANES * bins, 1.0), 1.0)
        turns = ceil(_BLOCKS_PER_MULTIPROCESSOR / fitting)
        # Extremes are compared with regard to NaN, and those of 64 bits take two accesses.
        if contention.looks_first(work.problem):
            turns *= _COMPARED
        turns *= max(accumulate_bytes(work.problem.data_dtype) // 4, 1)
        return {
            "launches": work.launches(2 + stages.around_launches(work)),
            "streams": work.streams(work.operand_bytes),
            "around": stages.around_time(work),
            "updates": work.cycles(turns * work.update_size / work.machine.multiprocessors),
            "bins": work.streams(2 * blocks * bins),
            "bins of lanes": work.cycles(10 * _LANES * bins / 32),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        reduce_by_blocks(
            operands,
            f"  fill_lane_bins<P, {config['unroll']}>(partials, updates, indices, sizes, shared);",
            _blocks(operands.target),
            _LANES,
            output_bytes(operands.problem) * _LANES,
        )


def _blocks(target: Any) -> int:
    return _BLOCKS_PER_MULTIPROCESSOR * multiprocessors(target)
