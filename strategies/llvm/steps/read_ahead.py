"""Reads what computed updates need to know of each row ahead of the rows themselves.

In the order of destinations, where a row is stands anywhere, and so does its weight. Where reading
one had to wait for the other, a processor would have few rows under way. In a loop of their own all
these reads are under way together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import ComputedUpdates
from tvm_scatter.emit.row_parts import row_parts, with_parts
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem

from . import loops
from .records import Field


def axes_of_rows(problem: ScatterProblem, updates: Any, width: Any) -> int | None:
    """How many axes of computed updates make up a row of some width.

    ``None`` if they read nothing that is the same along each of several rows.
    """
    if problem.index_slice or not problem.update_slice or not isinstance(updates, ComputedUpdates):
        return None
    axes = updates.axes_of(width)
    if axes is None or axes == len(updates.shape) or not row_parts(updates, axes):
        return None
    return axes


class RowParts:
    """What is known of some rows of updates before they are read.

    Parameters
    ----------
    updates : ComputedUpdates
        What reads them.
    axes : int
        How many of the last axes of the updates make up a row.
    fields : sequence of (expression, Field)
        The parts of the rows, and where each is kept.
    """

    def __init__(
        self, updates: ComputedUpdates, axes: int, fields: Sequence[tuple[Any, Field]]
    ) -> None:
        self._updates, self._axes, self._fields = updates, axes, fields

    def read(self, i: Any, update: Any) -> None:
        """Emit the reads of the row at a position in the updates, as the i-th."""
        for part, field in self._fields:
            field.store(i, self._updates.expression(update, loops.int64(0), self._axes, part))

    def element(self, i: Any, update: Any, column: Any) -> Any:
        """An element of the i-th row."""
        pairs = [(part, field.load(i, str(part.ty.dtype))) for part, field in self._fields]
        value = with_parts(self._updates.value, pairs)
        return self._updates.expression(update, column, self._axes, value)


class ReadAhead(RowParts):
    """What is read ahead for the items of a chunk.

    Parameters
    ----------
    most : int
        The most items of a chunk.
    """

    def __init__(self, updates: ComputedUpdates, axes: int, most: int) -> None:
        parts = row_parts(updates, axes)
        super().__init__(updates, axes, [(part, _field(most, part)) for part in parts])

    def read_all(self, length: Any, update_at: Callable[[Any], Any]) -> None:
        """Emit the reads of a chunk.

        Parameters
        ----------
        length : expression
            The items of the chunk.
        update_at : callable
            The position in the updates of the row of the i-th of these.
        """
        with loops.serial(length) as i:
            self.read(i, T.bind(update_at(i)))


def _field(size: int, part: Any) -> Field:
    """A buffer of a task. TVM would keep bfloat16 as float32 in one that it knows the type of."""
    dtype = str(part.ty.dtype)
    room = T.alloc_buffer((size * item_bytes(dtype),), "uint8", scope="global")
    return Field(T.decl_buffer((size,), dtype, data=room.data))
