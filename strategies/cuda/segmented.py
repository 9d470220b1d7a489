"""Segmented: orders updates by destination, then writes every output row once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.ordering import numbers_fit
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .codegen.carried import MOST_BYTES
from .ordering import ORDERING, emit_order, order_carries, order_workspace, time_of_order
from .steps import listed_rows, segments, sorting, stages
from .steps.order_forms import OrderedLists

#: As many updates are worth an order that moves what lists carry: a million take 1.0 to 1.06 of the
#: time, five million 0.90 to 0.94, and 14 and 40 million 0.64 to 0.97.
_MANY_TO_MOVE = 1 << 21
#: The region of what is carried of each update, as tiles are ordered.
_BY_TILE = "carried_by_tile"


class Segmented(Implementation):
    """A stable order, then a balanced reduction of each row's segment, in a fixed order."""

    name = "segmented"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    finishes = True
    # An order that others share takes as long.
    order_cost = ORDERING.cost
    summary = "rows with repeated or skewed destinations, where sums must be reproducible"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        return sorting.refuse_too_many(problem)

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (128, 256)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _layout(problem, sizes, target).total

    def cost(self, work: Work, config: Config) -> Terms:
        if _fits_an_order(work.problem):
            launches, time, carries = time_of_order(work)
            found = {"launches": work.launches(2 + launches), "order": time}
            moved = carries and _are_moved(work.problem, work.problem.items.constant)
        else:
            launches, time = sorting.launches(work), sorting.time(work)
            found = {"launches": work.launches(4 + launches), "sort": time}
            moved = False
        misses = sorting.misses_of_messages(work, moved)
        return {**found, **listed_rows.cost(work), "misses": misses}

    def emit(self, operands: Operands, config: Config) -> None:
        layout = _layout(operands.problem, operands.sizes, operands.target)
        moves = _moves(operands.problem, operands.sizes, operands.target)
        moves = moves and segments.carries(operands)
        if _fits_an_order(operands.problem):
            lists = _order(operands, layout, moves)
        else:
            lists = _sort(operands, layout)
        segments.reduce_rows(operands, layout, *lists, config["threads"], carried=moves)


def _fits_an_order(problem: ScatterProblem) -> bool:
    """Whether an order numbers all updates and places, as one that scatters share does."""
    return problem.is_static and numbers_fit(problem)


def _moves(problem: ScatterProblem, sizes: Sizes, target: Any) -> bool:
    """Whether an order moves what lists may carry."""
    many = _fits_an_order(problem) and _are_moved(problem, sizes.items)
    return many and order_carries(problem, sizes, target)


def _are_moved(problem: ScatterProblem, items: int) -> bool:
    """Whether there is something to carry of enough updates."""
    return problem.fused and items >= _MANY_TO_MOVE


def _layout(problem: ScatterProblem, sizes: Sizes, target: Any) -> sorting.Layout:
    layout = sorting.Layout()
    if _fits_an_order(problem):
        layout.add("order", order_workspace(problem, sizes, target))
        layout.add("permutation", sizes.items * 4)
        layout.add("offsets", (sizes.destinations + 1) * 4)
        layout.add(_BY_TILE, sizes.items * MOST_BYTES if _moves(problem, sizes, target) else 0)
    else:
        sorting.add_regions(layout, problem, sizes)
        for name in ("begins", "ends"):
            layout.add(name, sizes.destinations * sorting.key_bytes(problem, sizes))
    segments.add_regions(layout, problem, sizes)
    return layout


def _order(
    operands: Operands, layout: sorting.Layout, moves: bool
) -> tuple[str, sorting.Arguments]:
    """Order the updates; C++ declarations of their lists, and the arguments of these."""
    arguments = layout.arguments("permutation", "offsets")
    text = layout.pointer("permutation", "int") + layout.pointer("offsets", "int")
    carried = (_BY_TILE, segments.CARRIED) if moves else None
    moved = "".join(layout.pointer(each, "P::Updates::Carried") for each in carried or ())
    named = {**arguments, **layout.arguments(*carried or ())}
    emit_order(operands, OrderedLists("permutation", "offsets", text + moved, named, carried))
    text += segments.ranges("offsets") + "  const Key* const items = permutation;\n"
    return text + segments.KEYS_BY_INDEX, arguments


def _sort(operands: Operands, layout: sorting.Layout) -> tuple[str, sorting.Arguments]:
    """The same by a sort of keys that may have 64 bits."""
    sorting.sort(operands, layout)
    _find_segments(operands, layout)
    text, arguments = sorting.sorted_lists(operands, layout)
    return text + _segments(layout), arguments | layout.arguments("begins", "ends")


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
