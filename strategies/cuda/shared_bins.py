"""Shared-memory bins: each block reduces into a copy of a small output; copies are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .steps import shared_contention, stages

_MERGE_THREADS = 256
#: Bytes of shared memory of a block with several copies: at least two blocks fit a multiprocessor.
_REPLICATED_BYTES = 96 << 10
_MANY_ITEMS = 1 << 20
#: Bytes of a counter in front of the bins, for blocks that count their completion.
_COUNTER_BYTES = device_constant("bins", "kCounterBytes")


class SharedBins(Implementation):
    """Each block has its own bins, in several replicas, so that lanes of a warp collide less."""

    name = "shared_bins"
    takes_empty = False
    accumulates_wide = True
    fuses = True
    summary = "an output that fits in shared memory, and many updates: histograms"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.reduces.merges:
            return f"it cannot combine partial results of {problem.reduction!r}"
        if not problem.data_size.is_static:
            return "the size of the output must be known"
        needed = output_bytes(problem)
        limit = shared_memory_limit(target)
        if needed > limit:
            return f"the output takes {needed} bytes and a block has {limit}"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        limit = min(_REPLICATED_BYTES, shared_memory_limit(target))
        copies = [c for c in (32, 16, 8, 4, 2) if output_bytes(problem) * c <= limit] + [1]
        # Two blocks for each multiprocessor are an option only if both fit; each adds a copy to
        # merge.
        many = not problem.items.is_static or problem.items.constant > _MANY_ITEMS
        blocks = (2, 1) if len(copies) > 1 and many else (1, 2)
        return {
            "copies": tuple(copies),
            "blocks_per_multiprocessor": (*blocks, 4, 8),
            "threads": (1024, 512, 256),
            "unroll": (4, 8, 16),
        }

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _blocks(config, target) * output_bytes(problem)

    def cost(self, work: Work, config: Config) -> Terms:
        bins = work.data_size * accumulate_bytes(work.problem.data_dtype)
        copies, units = config["copies"], work.machine.multiprocessors
        blocks = config["blocks_per_multiprocessor"] * units
        # Few updates are in few blocks.
        busy = work.update_size / (config["threads"] * config["unroll"])
        busy = larger(smaller(busy, float(blocks)), 1.0)
        # What an update takes, and takes again where others change its place.
        each = shared_contention.instructions(work) * shared_contention.sharing_a_word(work)
        each = each * shared_contention.repeats(
            work, float(config["threads"]), work.data_size * copies
        )
        meets = "swaps" if shared_contention.swaps(work) else "atomics"
        return {
            "launches": work.launches(2 + stages.around_launches(work)),
            "streams": work.streams(work.operand_bytes),
            "around": stages.around_time(work),
            meets: work.cycles(work.update_size / smaller(busy, float(units)) * each),
            "bins": work.streams(2 * blocks * bins),
            "copies of bins": work.cycles(10 * copies * bins / 32),
            "hot updates": work.cycles(
                work.hottest * work.batch / (busy * copies) * shared_contention.at_a_place(work)
            ),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        copies = config["copies"]
        reduce_by_blocks(
            operands,
            f"  fill_bins<P, {copies}, {config['unroll']}>(partials, updates, indices, sizes, "
            "shared);",
            _blocks(config, operands.target),
            config["threads"],
            output_bytes(operands.problem) * copies,
        )


def _blocks(config: Config, target: Any) -> int:
    return config["blocks_per_multiprocessor"] * multiprocessors(target)


def output_bytes(problem: ScatterProblem) -> int:
    """Bytes of one copy of the output in its accumulation type. Its size must be static."""
    return problem.data_size.constant * accumulate_bytes(problem.data_dtype)


@dataclass(frozen=True)
class Merge:
    """A launch that combines partial results with what stands in the output.

    Attributes
    ----------
    headers : tuple of str
        Device headers.
    call : str
        The C++ call of a device routine, in which ``{base}`` is the tensor that bins begin with.
    blocks, threads : int
        Of the launch.
    """

    headers: tuple[str, ...]
    call: str
    blocks: int
    threads: int


def reduce_by_blocks(
    operands: Operands,
    fill: str,
    blocks: int,
    threads: int,
    shared_bytes: int,
    merge: Merge | None = None,
) -> None:
    """Launch ``fill``, which writes a result of each block to ``partials``, and merge these.

    Parameters
    ----------
    fill : str
        The C++ call of a device routine.
    merge : Merge, optional
        How; by default for partial results of which each block has written a column.
    """
    problem = operands.problem
    partials = "  using Wide = Accumulate<Data>;\n"
    partials += "  Wide* const partials = reinterpret_cast<Wide*>(workspace);\n"
    merge = merge or Merge(
        ("bins",),
        f"merge_bins<P>(out, {{base}}, partials, {blocks}, sizes);",
        ceil_div(problem.data_size.constant * 32, _MERGE_THREADS),
        _MERGE_THREADS,
    )

    def reduce(base: str) -> None:
        launch(
            operands,
            merge.headers,
            partials + fill,
            blocks,
            threads,
            shared_bytes=shared_bytes,
            resolves_every_index=True,
            completion_count_bytes=_COUNTER_BYTES,
        )
        launch(
            operands,
            merge.headers,
            partials + f"  {merge.call.format(base=base)}",
            blocks=merge.blocks,
            threads=merge.threads,
        )

    if problem.include_self:
        reduce("out" if operands.data is None else "data")
        return
    # The bins with updates must start from the identity, and only the indices tell which these are.
    stages.copy_data(operands)
    stages.around(operands, lambda: reduce("out"))
