"""Launches that order updates by destination: a radix sort, and a search for each offset."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from . import sorting, stages
from .order_forms import OrderForm


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    sorting.add_regions(layout, problem, sizes)
    return layout


def _workspace(problem: ScatterProblem, sizes: Sizes) -> Any:
    return _layout(problem, sizes).total


def _emit(operands: Operands, offsets: Any) -> None:
    layout, sizes = _layout(operands.problem, operands.sizes), operands.sizes
    sorting.sort(operands, layout)
    text, arguments = sorting.sorted_lists(operands, layout)
    stages.stride_launch(
        operands,
        text + "  write_order(out, static_cast<Data*>(offsets), keys, items, sizes.items(), "
        "sizes.destinations());",
        sizes.items + sizes.destinations + 1,
        ("ordering",),
        {**arguments, "offsets": ("void*", offsets.data)},
    )


FORM = OrderForm("radix", lambda problem, sizes, target: True, _workspace, _emit)
