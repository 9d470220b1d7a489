"""Carries through a sort what computed updates need to know of each row.

Whoever sorts items comes by them in order, and reads where their rows are, and their weights, side
by side. In the order of destinations both are anywhere.
"""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T

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
#: Each buffer begins at a multiple of so many items, and so of as many bytes.
_ROUNDED_TO = 64


class CarriedRows(RowParts):
    """What is carried of each item, in the order of destinations.

    Parameters
    ----------
    axes : int
        How many of the last axes of the updates make up a row.
    offset : int
        Where its workspace begins, in bytes.
    """

    def __init__(self, operands: Operands, axes: int, offset: Any) -> None:
        self._operands, self._end = operands, offset
        super().__init__(operands.updates, axes, self._buffer)

    def _buffer(self, dtype: str) -> Any:
        begin, items = self._end, _rounded_items(self._operands.problem, self._operands.sizes)
        self._end = begin + items * item_bytes(dtype)
        return loops.workspace_view(self._operands, begin, items, dtype)

    def carry(self, to: Any, item: Any) -> None:
        """Emit the reads of an item, whose position in the order is given."""
        b, k, _ = loops.item_coordinates(self._operands, item)
        update = loops.update_position(self._operands, b, k, loops.int64(0))
        self.read(to, T.bind(update))


def carried_bytes(problem: ScatterProblem, sizes: Sizes) -> Any:
    """Bytes of the workspace, for a problem with known sizes."""
    return _rounded_items(problem, sizes) * _MOST_BYTES if _suits(problem, sizes) else 0


def carried(operands: Operands, width: Any, offset: Any) -> CarriedRows | None:
    """What is carried of each item; ``None`` if that does not pay.

    Parameters
    ----------
    width : int
        Elements of a row.
    offset : int
        Where its workspace begins, in bytes.
    """
    updates = operands.updates
    axes = axes_of_rows(operands.problem, updates, width)
    if axes is None or not _suits(operands.problem, operands.sizes):
        return None
    needed = sum(item_bytes(str(part.ty.dtype)) for part in row_parts(updates, axes))
    return None if needed > _MOST_BYTES else CarriedRows(operands, axes, offset)


def _suits(problem: ScatterProblem, sizes: Sizes) -> bool:
    is_simple = problem.fused and problem.batch.is_one and not problem.reduces.is_store
    return bool(is_simple and loops.item_count(problem, sizes) >= _LEAST_ITEMS)


def _rounded_items(problem: ScatterProblem, sizes: Sizes) -> Any:
    return round_up(loops.item_count(problem, sizes), _ROUNDED_TO)
