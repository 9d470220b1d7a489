"""Shared-memory private bins: a small output stands in every block's shared memory, merged once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.strategies.cuda import stages
from tvm_scatter.strategies.cuda.launch import launch
from tvm_scatter.strategies.cuda.source import accumulate_bytes
from tvm_scatter.strategies.cuda.target import shared_memory_limit

from tvm_scatter.emission import Operands
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.sizes import Sizes, ceil_div
from tvm_scatter.strategy import Config, Implementation

_MERGE_THREADS = 256
#: Shared memory of one block with several copies: two blocks and more fit a multiprocessor.
_REPLICATED_BYTES = 96 << 10


class SharedBins(Implementation):
    """Every block reduces into bins of its own; replicas keep the lanes of a warp apart."""

    name = "shared_bins"
    summary = "an output that fits in shared memory, and many updates: histograms"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduction in ("update", "mean"):
            return f"it cannot combine partial results of {problem.reduction!r}"
        if not problem.data_size.is_static:
            return "the size of the output must be known"
        needed = _output_bytes(problem)
        limit = shared_memory_limit(target)
        if needed > limit:
            return f"the output takes {needed} bytes and a block has {limit}"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        limit = min(_REPLICATED_BYTES, shared_memory_limit(target))
        copies = [c for c in (32, 16, 8, 4, 2) if _output_bytes(problem) * c <= limit]
        return {
            "copies": (*copies, 1),
            "blocks": (264, 132, 528, 1056),
            "threads": (512, 256, 1024),
            "unroll": (8, 4, 16),
        }

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return config["blocks"] * _output_bytes(problem)

    def emit(self, operands: Operands, config: Config) -> None:
        problem = operands.problem
        if problem.include_self:
            base = "out" if operands.data is None else "data"
            _reduce(operands, config, base)
            return
        # Which bins were touched is known only from the indices: reset these first.
        stages.copy_data(operands)
        stages.around(operands, lambda: _reduce(operands, config, "out"))


def _output_bytes(problem: ScatterProblem) -> int:
    return problem.data_size.constant * accumulate_bytes(problem.data_dtype)


def _reduce(operands: Operands, config: Config, base: str) -> None:
    problem = operands.problem
    blocks, copies = config["blocks"], config["copies"]
    partials = "  using Wide = Accumulate<Data>;\n"
    partials += "  Wide* const partials = reinterpret_cast<Wide*>(workspace);\n"
    launch(
        operands,
        ("bins",),
        partials + f"  fill_bins<P, {copies}, {config['unroll']}>(partials, updates, indices, "
        "sizes, shared);",
        blocks=blocks,
        threads=config["threads"],
        shared_bytes=_output_bytes(problem) * copies,
    )
    launch(
        operands,
        ("bins",),
        partials + f"  merge_bins<P>(out, {base}, partials, {blocks}, sizes);",
        blocks=ceil_div(problem.data_size.constant * 32, _MERGE_THREADS),
        threads=_MERGE_THREADS,
    )
