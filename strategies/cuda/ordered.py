"""Ordered: given the updates in the order of their destinations, writes every output row once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .codegen.launch import by_offsets
from .steps import listed_rows, segments, sorting

_OFFSETS = "static_cast<const Key*>(offsets_pointer)"
#: How the updates are numbered, in the order.
_LISTED = "  const Key* const items = static_cast<const Key*>(permutation_pointer);\n"
_IN_ORDER = "  const ListOf<Itself>::Type items;\n"
#: How the destination of an update is found where nobody has its index: by where segments begin.
_BY_SEARCH = "  const SearchedKeys<Key> keys{begins, sizes.destinations()};\n  (void)keys;\n"


class Ordered(Implementation):
    """The reduction of ``segmented`` alone, over an order that was made once for several scatters.

    Its sums are those of ``segmented``, bit for bit.
    """

    name = "ordered"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    finishes = True
    takes_ordering = True
    takes_order_alone = True
    takes_softmax = True
    summary = "several scatters by one index, which share the order of the updates"

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (128, 256)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        # Whether there is a workspace must not depend on what the sizes are at run time.
        return at_least(_layout(problem, sizes).total, 16)

    def cost(self, work: Work, config: Config) -> Terms:
        return {"launches": work.launches(2), **listed_rows.cost(work)}

    def emit(self, operands: Operands, config: Config) -> None:
        problem = operands.problem
        layout = _layout(problem, operands.sizes)
        lists = segments.ranges(_OFFSETS) + (_IN_ORDER if problem.in_order else _LISTED)
        lists += _BY_SEARCH if problem.order_alone else segments.KEYS_BY_INDEX

        def reduce(given: Operands) -> None:
            segments.reduce_rows(given, layout, lists, {}, config["threads"])

        by_offsets(operands, reduce)


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    segments.add_regions(layout, problem, sizes)
    return layout
