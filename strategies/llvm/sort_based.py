"""Sort-based: sorts updates by destination, then reduces the segment of each destination."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.arithmetic import larger
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.llvm.steps.radix import RadixSort
from tvm_scatter.strategies.llvm.steps.segments import Segments

from .steps import costs, loops


class SortBased(Implementation):
    """A stable radix sort over the bits that keys need, then a segmented reduction.

    Segments are cut at positions that depend on the sizes alone, so the result is the same under
    any number of threads.
    """

    name = "sort_based"
    accumulates_wide = True
    deterministic = True
    fuses = True
    order_cost = 1.0
    summary = (
        "plain updates of wide rows, several for each destination: only the last is read; means, "
        "minima and maxima of messages"
    )

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        sort, segments = RadixSort(problem, sizes), Segments(problem, sizes)
        return sort.workspace_bytes + segments.workspace_bytes

    def cost(self, work: Work, config: Config) -> Terms:
        workers = costs.cores(work)
        # Of plain updates of one place only the last is read.
        rows = work.touched if work.problem.reduces.is_store else work.items
        apart = costs.misses(work, workers, work.update_bytes)
        leaves = 0.0
        if work.problem.fused:
            # Rows are read from anywhere in any order of the updates. But where they are is read in
            # order elsewhere: an index of the size of this one.
            apart, leaves = 0.0, work.misses(2 * rows, work.index_bytes)
        return {
            "launches": work.launches(14),
            "streams": work.streams(work.copied_bytes + work.index_bytes),
            "rows": work.streams(rows * larger(work.row_bytes, 64.0)),
            "sort": 3 * costs.find(work, workers),
            "rows again": costs.again(work),
            "leaves": leaves,
            "misses": apart * rows / larger(work.items, 1.0),
            "updates": costs.combine_in_registers(work, workers, rows),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        loops.copy_data(operands)
        sort, segments = RadixSort(problem, sizes), Segments(problem, sizes)
        keys, items = sort.emit(operands, offset=0)
        segments.emit(operands, keys, items, offset=sort.workspace_bytes)
