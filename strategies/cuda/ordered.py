"""Ordered: given the updates in the order of their destinations, writes every output row once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div
from tvm_scatter.selection.strategy import Config, Implementation

from .steps import sorting
from .steps.segments import CHUNK, Segments, add_regions

_LISTS = """  using Key = int;
  const Key* const items = static_cast<const Key*>(permutation_pointer);
  const Key* const begins = static_cast<const Key*>(offsets_pointer);
  const Key* const ends = begins + 1;
  const OrderedKeys<P> keys{indices, items, sizes};
  (void)keys;
"""


#: With fewer lanes to a row, each group works on one row.
_LEAST_LANES = 8


class Ordered(Implementation):
    """A walk along an order that was made once for several scatters; long segments as in
    ``segmented``.
    """

    name = "ordered"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    takes_ordering = True
    summary = "several scatters by one index, which share the order of the updates"

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"rows": (4, 2, 8), "ahead": (4, 8), "threads": (128, 256)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        # Whether there is a workspace must not depend on what the sizes are at run time.
        return at_least(_layout(problem, sizes).total, 16)

    def emit(self, operands: Operands, config: Config) -> None:
        layout = _layout(operands.problem, operands.sizes)
        rows = Segments(operands, "ordered", layout, _LISTS, {}, config["threads"])
        rows.sum_chunks()
        if rows.lanes < _LEAST_LANES:
            rows.write()
        else:
            _walk(rows, operands.sizes, config)


def _walk(rows: Segments, sizes: Sizes, config: Config) -> None:
    if rows.may_be_long:
        rows.step(
            f"write_long_rows<P, Key, {{lanes}}, {{vector}}, {rows.mean}>(out, {rows.source}, "
            "begins, keys, segments, sizes, tiles);",
            ceil_div(sizes.items, CHUNK),
        )
    count = config["rows"]
    rows.step(
        f"walk_rows<P, Key, {{lanes}}, {{vector}}, {config['ahead']}, {count}, {rows.mean}>(out, "
        f"{rows.source}, begins, segments, sizes, tiles);",
        ceil_div(sizes.destinations, count),
    )


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    add_regions(layout, problem, sizes)
    return layout
