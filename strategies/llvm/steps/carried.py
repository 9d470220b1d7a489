"""Carries through a sort what computed updates need to know of each row.

Whoever sorts items comes by them in order, and reads where their rows are, and their weights, side
by side. In the order of destinations both are anywhere.
"""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.row_parts import row_parts
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, round_up

from . import loops
from .read_ahead import RowParts, axes_of_rows

#: Bytes that are carried of an item, at most. There is room for as many, whatever is carried.
_MOST_BYTES = 16
#: As many items are worth it: fewer are in a cache of the core, whatever their order.
_LEAST_ITEMS = 1 << 15


def _suits(problem: ScatterProblem, sizes: Sizes) -> bool:
    is_simple = problem.fused and problem.batch.is_one and not problem.reduces.is_store
    return is_simple and loops.item_count(problem, sizes) >= _LEAST_ITEMS


def carried_bytes(problem: ScatterProblem, sizes: Sizes) -> Any:
    """Bytes of the workspace, for a problem with known sizes."""
    return loops.item_count(problem, sizes) * _MOST_BYTES if _suits(problem, sizes) else 0


def carried(operands: Operands, width: Any, offset: Any) -> RowParts | None:
    """What is carried of each item, in the order of destinations; ``None`` if that does not pay.

    Parameters
    ----------
    width : int
        Elements of a row.
    offset : int
        Where its workspace begins, in bytes.
    """
    problem, sizes, updates = operands.problem, operands.sizes, operands.updates
    axes = axes_of_rows(problem, updates, width)
    if axes is None or not _suits(problem, sizes):
        return None
    needed = sum(item_bytes(str(part.ty.dtype)) for part in row_parts(updates, axes))
    if needed > _MOST_BYTES:
        return None
    items = loops.item_count(problem, sizes)
    begin = offset

    def buffer(dtype: str) -> Any:
        nonlocal begin
        view = loops.workspace_view(operands, begin, items, dtype)
        begin += round_up(items * item_bytes(dtype), 64)
        return view

    return RowParts(updates, axes, buffer)
