"""Sequential: applies updates in order, in parallel over batches and columns only."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.arithmetic import smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import costs, memory_costs, ordered


class Sequential(Implementation):
    """All updates of a batch and a block of columns in order; the last one wins."""

    name = "sequential"
    deterministic = True
    fuses = True
    summary = "few updates, many batches or wide rows; the meaning of scatter itself"

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return ordered.counts_bytes(problem, sizes)

    def cost(self, work: Work, config: Config) -> Terms:
        workers = costs.lines(work)
        # Workers that share a batch look at all of its indices.
        finders = smaller(work.batch, costs.cores(work))
        output = memory_costs.rows_of_output(work)
        return {
            "launches": costs.threads(work, 1),
            "streams": memory_costs.moved(work),
            "finds": costs.find(work, work.items, finders),
            "updates": costs.combine(work, workers),
            "extremes": costs.extremes(work, workers),
            "counts": costs.counts(work, workers),
            "waits": costs.again_soon(work, workers),
            "misses": memory_costs.rows_apart(work, workers, output),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        ordered.scatter(operands, divide_places=False)
