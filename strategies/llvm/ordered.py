"""Ordered: given the updates in the order of their destinations, reduces each one's segment."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import costs, loops, softmax
from .steps.fills import fill_output
from .steps.order_costs import in_order
from .steps.rows import Rows


class Ordered(Implementation):
    """The reduction of ``sort_based`` alone, over an order that is made once for many scatters."""

    name = "ordered"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    takes_ordering = True
    takes_order_alone = True
    takes_softmax = True
    summary = "several scatters by one index, which share the order of the updates"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.softmax and problem.data_dtype not in ("float32", "float64"):
            return "it adds what a softmax weights in memory, and 16 bits would round each sum"
        return None

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return 0 if problem.softmax else Rows(problem, sizes).workspace_bytes

    def cost(self, work: Work, config: Config) -> Terms:
        return {
            "launches": costs.threads(work, 4),
            **in_order(work, costs.cores(work)),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        if not problem.fill:
            loops.copy_data(operands)
        elif problem.softmax:
            fill_output(operands)
        offsets = operands.ordering[-1]
        _expect_ascending(operands.signature.operator, offsets, sizes)
        if problem.softmax:
            softmax.SoftmaxRows(operands).emit()
            return
        item_at = partial(loops.ordered_item, operands)
        Rows(problem, sizes).emit(operands, offsets, item_at, offset=0)


def _expect_ascending(operator: str, offsets: Any, sizes: Sizes) -> None:
    """Raise unless offsets ascend within the updates: they may come from anywhere."""
    places = loops.int64(loops.settle(sizes.destinations))
    descends = loops.small_buffer(1, "int32")
    T.buffer_store(descends, tirx.IntImm("int32", 0), [0])
    with loops.serial(places) as place:
        step = tirx.Cast("int32", offsets[place + 1] < offsets[place])
        T.buffer_store(descends, tirx.bitwise_or(descends[0], step), [0])
    inside = tirx.all(offsets[0] >= 0, loops.int64(offsets[places]) <= loops.int64(sizes.items))
    message = f"{operator}: the offsets of ordering must ascend from 0 to at most the updates"
    with T.Assert(tirx.all(descends[0] == 0, inside), message):
        pass
