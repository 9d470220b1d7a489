"""Segmented: sorts updates by destination, then writes every output row once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import listed_rows, segments, sorting, stages


class Segmented(Implementation):
    """A stable sort, then a balanced reduction of each row's segment, in a fixed order."""

    name = "segmented"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    finishes = True
    order_cost = 1.0
    summary = "rows with repeated or skewed destinations, where sums must be reproducible"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        return sorting.refuse_too_many(problem)

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (128, 256)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _layout(problem, sizes).total

    def cost(self, work: Work, config: Config) -> Terms:
        return {
            "launches": work.launches(4 + sorting.launches(work)),
            "sort": sorting.time(work),
            **listed_rows.cost(work),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        layout = _layout(operands.problem, operands.sizes)
        sorting.sort(operands, layout)
        _find_segments(operands, layout)
        text, arguments = sorting.sorted_lists(operands, layout)
        text += _segments(layout)
        arguments |= layout.arguments("begins", "ends")
        segments.reduce_rows(operands, layout, text, arguments, config["threads"])


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    sorting.add_regions(layout, problem, sizes)
    for name in ("begins", "ends"):
        layout.add(name, sizes.destinations * sorting.key_bytes(problem, sizes))
    segments.add_regions(layout, problem, sizes)
    return layout


def _segments(layout: sorting.Layout) -> str:
    return layout.pointer("begins", "Key") + layout.pointer("ends", "Key")


def _find_segments(operands: Operands, layout: sorting.Layout) -> None:
    stages.stride_launch(
        operands,
        sorting.KEY + _segments(layout) + "  fill(begins, Key(0), int64(sizes.destinations()));\n"
        "  fill(ends, Key(0), int64(sizes.destinations()));",
        operands.sizes.destinations,
        arguments=layout.arguments("begins", "ends"),
    )
    text, arguments = sorting.sorted_lists(operands, layout)
    stages.stride_launch(
        operands,
        text + _segments(layout) + "  find_segments(begins, ends, keys, sizes.items(), "
        "static_cast<Key>(sizes.destinations()));",
        operands.sizes.items,
        ("segmented",),
        {**arguments, **layout.arguments("begins", "ends")},
    )
