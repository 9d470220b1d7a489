"""Sort-based: sorts updates by destination, then reduces the segment of each destination."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.arithmetic import larger, logarithm
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import costs, loops
from .steps.carried import SortedItems, items_bytes
from .steps.counting import CountingSort
from .steps.order_costs import in_order
from .steps.radix import DIGIT_BITS, RadixSort
from .steps.rows import Rows
from .steps.segments import Segments

#: The natural logarithm of the number of digits.
_DIGIT = log(2) * DIGIT_BITS


class SortBased(Implementation):
    """A stable radix sort over the bits that keys need, then a segmented reduction.

    Segments are cut at positions that depend on the sizes alone, so the result is the same under
    any number of threads.
    """

    name = "sort_based"
    takes_empty = False
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    order_cost = 1.0
    summary = (
        "plain updates of wide rows, several for each destination: only the last is read; sums, "
        "means, minima and maxima of messages"
    )

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        if CountingSort.suits(problem):
            counting, rows = CountingSort(problem, sizes), Rows(problem, sizes)
            sort = counting.workspace_bytes + counting.offsets_bytes
            return sort + items_bytes(problem, sizes) + rows.workspace_bytes
        sort, segments = RadixSort(problem, sizes), Segments(problem, sizes)
        return sort.workspace_bytes + segments.workspace_bytes

    def given(self, problem: ScatterProblem) -> ScatterProblem:
        # Only where rows have offsets those without updates are visited.
        if problem.fill and not CountingSort.suits(problem):
            problem = replace(problem, fill="", in_place=True)
        return super().given(problem)

    def cost(self, work: Work, config: Config) -> Terms:
        workers = costs.cores(work)
        in_one_pass = CountingSort.suits(work.problem)
        listed, keys = costs.listed(work), costs.keys(work)
        counting = costs.find(work, listed, workers) + work.streams(8 * keys)
        passes = larger(logarithm(larger(keys, 2.0)) / _DIGIT, 1.0)
        return {
            "launches": costs.threads(work, 5 if in_one_pass else 14),
            "counting": counting if in_one_pass else 0.0,
            "radix": 0.0 if in_one_pass else passes * costs.find(work, listed, workers),
            **in_order(work, workers),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        if not problem.fill:
            loops.copy_data(operands)
        if CountingSort.suits(problem):
            _emit_in_one_pass(operands)
            return
        sort, segments = RadixSort(problem, sizes), Segments(problem, sizes)
        keys, order = sort.emit(operands, offset=0)
        segments.emit(operands, keys, order, offset=sort.workspace_bytes)


def _emit_in_one_pass(operands: Operands) -> None:
    counting = CountingSort(operands.problem, operands.sizes)
    rows = Rows(operands.problem, operands.sizes)
    offset = counting.workspace_bytes
    offsets = counting.view_offsets(operands, offset)
    offset = offset + counting.offsets_bytes
    items = SortedItems(operands, rows.width, offset)
    offset = offset + items_bytes(operands.problem, operands.sizes)
    counting.emit(operands, 0, offsets, items.put)
    rows.emit(operands, offsets, items.item_at, offset, items.rows)
