"""Packed bins: each block has 16 bits of every bin, two to a word, and passes on what is beyond."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import Rounding
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .steps import stages

_COUNTER_BYTES = device_constant("bins", "kCounterBytes")
_MERGE_THREADS = 256
_TYPES = ("int32", "uint32")
_PARTIALS = "  uint32* const partials = reinterpret_cast<uint32*>(workspace);\n"


class PackedBins(Implementation):
    """Sums of 32-bit integers into twice the bins that a block has room for.

    It has not been measured yet. So it says no cost, and is used only where it is asked for.
    """

    name = "packed_bins"
    deterministic = True
    fuses = True
    summary = "counts of some ten thousand bins"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        is_sum = problem.reduces.merges and problem.reduces.rounding is Rounding.SUM
        if not is_sum or problem.data_dtype not in _TYPES:
            return "it takes sums of 32-bit integers"
        if not problem.data_size.is_static:
            return "the size of the output must be known"
        needed, limit = _bins_bytes(problem), shared_memory_limit(target)
        if needed > limit:
            return f"halves of the output take {needed} bytes and a block has {limit}"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"blocks_per_multiprocessor": (1, 2), "threads": (1024, 512), "unroll": (4, 8)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _blocks(config, target) * _bins_bytes(problem)

    def emit(self, operands: Operands, config: Config) -> None:
        blocks = _blocks(config, operands.target)

        def reduce_into_out() -> None:
            launch(
                operands,
                ("packed_bins",),
                f"{_PARTIALS}  fill_packed_bins<P, {config['unroll']}>(partials, out, updates, "
                "indices, sizes, shared);",
                blocks,
                config["threads"],
                shared_bytes=_bins_bytes(operands.problem),
                resolves_every_index=True,
                completion_count_bytes=_COUNTER_BYTES,
            )
            launch(
                operands,
                ("packed_bins",),
                f"{_PARTIALS}  merge_packed_bins<P>(out, partials, {blocks}, sizes);",
                ceil_div(operands.sizes.data_size, 2 * _MERGE_THREADS),
                _MERGE_THREADS,
            )

        # What goes beyond 16 bits is added to the output while bins are filled.
        stages.copy_data(operands)
        stages.around(operands, reduce_into_out)


def _blocks(config: Config, target: Any) -> int:
    return config["blocks_per_multiprocessor"] * multiprocessors(target)


def _bins_bytes(problem: ScatterProblem) -> int:
    return max(ceil_div(problem.data_size.constant, 2) * 4, 4)
