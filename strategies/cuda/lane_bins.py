"""Lane bins: a small output stands in shared memory once for each lane, so nothing is atomic."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .shared_bins import output_bytes, reduce_by_blocks

_LANES = 32
#: Six warps with 32 KB of bins each fit one of 132 multiprocessors. A constant and no knob, because
#: the number of partial sums decides how the result is rounded.
_BLOCKS = 792


class LaneBins(Implementation):
    """Blocks of one warp, each lane with bins of its own, merged in a fixed order."""

    name = "lane_bins"
    accumulates_wide = True
    deterministic = True
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

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return _BLOCKS * output_bytes(problem)

    def emit(self, operands: Operands, config: Config) -> None:
        reduce_by_blocks(
            operands,
            f"  fill_lane_bins<P, {config['unroll']}>(partials, updates, indices, sizes, shared);",
            _BLOCKS,
            _LANES,
            output_bytes(operands.problem) * _LANES,
        )
