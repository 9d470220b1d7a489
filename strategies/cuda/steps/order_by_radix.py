"""Launches that order updates by destination: a radix sort, and a search for each offset."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from . import sorting, stages
from .order_forms import OrderedLists, OrderForm


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    sorting.add_regions(layout, problem, sizes)
    return layout


def _workspace(problem: ScatterProblem, sizes: Sizes) -> Any:
    return _layout(problem, sizes).total


def _emit(operands: Operands, lists: OrderedLists) -> None:
    layout, sizes = _layout(operands.problem, operands.sizes), operands.sizes
    sorting.sort(operands, layout)
    text, arguments = sorting.sorted_lists(operands, layout)
    stages.stride_launch(
        operands,
        f"{text}{lists.declarations}  write_order({lists.permutation}, {lists.offsets}, keys, "
        "items, sizes.items(), sizes.destinations());",
        sizes.items + sizes.destinations + 1,
        ("ordering",),
        {**arguments, **lists.arguments},
    )


FORM = OrderForm("radix", lambda problem, sizes, target: True, _workspace, _emit)
