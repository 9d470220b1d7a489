"""Parallel-injective: each worker owns a part of the output and applies its updates."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import costs, loops, memory_costs, ordered

_UNIQUE_TASKS = 256


class ParallelInjective(Implementation):
    """Divides batches, else columns, else destinations among the workers.

    If destinations are unique, the updates themselves are divided. Otherwise each element gets its
    updates in order, so the result does not depend on the number of workers.
    """

    name = "parallel_injective"
    deterministic = True
    fuses = True
    summary = "many updates of narrow rows on many cores, and unique updates"

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return ordered.counts_bytes(problem, sizes)

    def cost(self, work: Work, config: Config) -> Terms:
        unique = work.problem.unique
        workers = costs.cores(work) if unique else costs.owners(work)
        divided = unique or costs.divides_places(work)
        output = memory_costs.rows_of_output(work, divided)
        return {
            "launches": costs.threads(work, 2),
            "streams": memory_costs.moved(work),
            "finds": costs.find_in_share(work, not unique and divided, workers),
            "updates": costs.combine(work, workers),
            "extremes": costs.extremes(work, workers),
            "counts": costs.counts(work, workers),
            "waits": costs.shared_lines(work) if unique else costs.again_soon(work, workers),
            "misses": memory_costs.rows_apart(work, workers, output),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        if not problem.unique or (isinstance(sizes.count, int) and sizes.count < _UNIQUE_TASKS):
            ordered.scatter(operands, divide_places=True)
            return
        loops.copy_data(operands)
        chunk = loops.settle(loops.maximum(1, ceil_div(sizes.count, _UNIQUE_TASKS)))

        def apply(start: Any, length: Any) -> None:
            with loops.serial(sizes.batch) as b:
                share = ordered.Share(b, loops.int64(0), sizes.slice, updates=(start, length))
                ordered.apply_updates(operands, share, None)

        work = sizes.batch * sizes.count * sizes.slice
        loops.for_each_chunk(sizes.count, chunk, work, apply)
