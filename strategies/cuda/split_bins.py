"""Split bins: an output beyond the shared memory of one block is divided among several."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .shared_bins import Merge, output_bytes, reduce_by_blocks
from .steps import shared_contention, stages

_MERGE_THREADS = 256
#: Cycles from one share to the next in the thread of a bin, which has eight on their way.
_SHARE_CYCLES = 100.0
#: Looks that a further component of an index takes as long as.
_COMPONENT_LOOKS = 17.0
#: Computed updates of one place take so many times as long: 46 cycles each under zipf(1.2).
_MEETING_MESSAGES = 3.0
#: Every part reads all updates, so more of them cost more than they can save.
_PARTS = (2, 3, 4, 6, 8)


class SplitBins(Implementation):
    """Each block has a part of the bins, and combines what falls into it."""

    name = "split_bins"
    accumulates_wide = True
    fuses = True
    summary = "histograms whose bins take a few times the shared memory of a block"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.reduces.merges:
            return f"it cannot combine partial results of {problem.reduction!r}"
        if not problem.data_size.is_static:
            return "the size of the output must be known"
        if not self.knobs(problem, target)["parts"]:
            needed, limit = output_bytes(problem), shared_memory_limit(target)
            return f"the output takes {needed} bytes and {_PARTS[-1]} blocks have {limit} each"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        limit = shared_memory_limit(target)
        return {
            "parts": tuple(parts for parts in _PARTS if _part_bytes(problem, parts) <= limit),
            "blocks_per_multiprocessor": (1, 2),
            "threads": (1024, 512),
            "unroll": (8, 4),
        }

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _shares(config, target) * output_bytes(problem)

    def cost(self, work: Work, config: Config) -> Terms:
        parts, units = config["parts"], work.machine.multiprocessors
        shares = max(config["blocks_per_multiprocessor"] * units // parts, 1)
        bins = work.data_size * accumulate_bytes(work.problem.data_dtype)
        # Sums of floats are a look and a swap, other loops begin again.
        turns = 2.0 if shared_contention.swaps(work) else 1.5
        if shared_contention.at_a_place(work) <= 1.0:
            turns = 1.0
        # Components of an index are read apart, and each is checked.
        components = 1.0 + _COMPONENT_LOOKS * (len(work.problem.extents) - 1)
        # Few updates are in few shares.
        busy = work.update_size / (config["threads"] * config["unroll"])
        busy = larger(smaller(busy, float(shares)), 1.0)
        # What an update takes, and takes again where others change its place.
        each = shared_contention.instructions(work) * shared_contention.sharing_a_word(work)
        each = each * shared_contention.repeats(
            work, float(config["threads"]), work.data_size / parts
        )
        # Each part computes all updates, whichever of them are its own.
        reads = parts * work.update_size if work.problem.fused else 0.0
        # What updates of one place wait beyond their turn, which each update has.
        waits = larger(shared_contention.at_a_place(work) - 1.0, 0.0)
        if work.problem.fused:
            waits = waits * _MEETING_MESSAGES
        return {
            "launches": work.launches(2 + stages.around_launches(work)),
            "streams": work.streams(work.operand_bytes),
            "around": stages.around_time(work),
            # The cache serves the updates to all parts but the first: that costs threads only.
            "looks": work.cycles(parts * work.update_size * components / units)
            + work.sectors(reads),
            "swaps" if shared_contention.swaps(work) else "atomics": work.cycles(
                work.update_size / smaller(busy * parts, float(units)) * each * turns
            ),
            "bins": work.streams(2 * shares * bins) + work.cycles(_SHARE_CYCLES * shares),
            "hot updates": work.cycles(work.hottest * work.batch / busy * waits),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        parts, shares = config["parts"], _shares(config, operands.target)
        merge = Merge(
            ("split_bins",),
            f"merge_shares<P>(out, {{base}}, partials, {shares}, sizes);",
            ceil_div(operands.problem.data_size.constant, _MERGE_THREADS),
            _MERGE_THREADS,
        )
        reduce_by_blocks(
            operands,
            f"  fill_split_bins<P, {parts}, {config['unroll']}>(partials, updates, indices, sizes, "
            "shared);",
            parts * shares,
            config["threads"],
            _part_bytes(operands.problem, parts),
            merge,
        )


def _shares(config: Config, target: Any) -> int:
    """Shares of the updates, of which each is read by as many blocks as there are parts."""
    blocks = config["blocks_per_multiprocessor"] * multiprocessors(target)
    return max(blocks // config["parts"], 1)


def _part_bytes(problem: ScatterProblem, parts: int) -> int:
    bins = ceil_div(problem.data_size.constant, parts)
    return max(bins * accumulate_bytes(problem.data_dtype), 1)
