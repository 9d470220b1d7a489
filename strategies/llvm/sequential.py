"""Sequential: updates applied in order, in parallel only over what they cannot share."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T
from tvm_scatter.strategies.llvm import loops, ordered

from tvm_scatter.emission import Operands
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.sizes import Sizes, ceil_div
from tvm_scatter.strategy import Config, Implementation

#: Columns that one worker takes: whole cache lines, and few enough blocks to read the index often.
_BLOCK_BYTES = 512


class Sequential(Implementation):
    """All updates of a batch and a block of columns in order; the last one wins."""

    name = "sequential"
    deterministic = True
    summary = "few updates, many batches or wide rows; the meaning of scatter itself"

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return ordered.counts_bytes(problem, sizes)

    def emit(self, operands: Operands, config: Config) -> None:
        sizes, problem = operands.sizes, operands.problem
        counts = ordered.counts_view(operands)
        loops.copy_data(operands)
        if counts is not None:
            loops.fill_zero(counts, loops.key_count(problem, sizes))
        columns = _BLOCK_BYTES // loops.itemsize(problem)
        blocks = ceil_div(sizes.slice, columns)

        def apply(task: Any) -> None:
            first = T.bind(task % loops.maximum(blocks, 1) * columns)
            share = ordered.Share(
                batch=T.bind(task // loops.maximum(blocks, 1)),
                column=first,
                columns=T.bind(loops.int64(loops.minimum(sizes.slice - first, columns))),
            )
            ordered.apply_updates(operands, share, counts)

        loops.for_each(sizes.batch * blocks, sizes.batch * sizes.count * sizes.slice, apply)
        if counts is not None:
            ordered.divide_by_counts(operands, counts)
