"""What a sort keeps of each item: its number, and what computed updates need to know of its row.

Whoever sorts items comes by them in order, and reads where their rows are, and their weights, side
by side. In the order of destinations both are anywhere.
"""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.row_parts import are_all_of_rows, row_parts
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from . import loops
from .begins_of_rows import fit_in_32_bits
from .read_ahead import RowParts, axes_of_rows
from .records import Field, record_bytes, records, records_bytes

#: Bytes that are kept of an item, at most. There is room for as many, whatever is kept.
_MOST_BYTES = 16
#: As many items are worth it: fewer are in a cache of the core, whatever their order.
_LEAST_ITEMS = 1 << 12


class SortedItems:
    """The items in the order of destinations, a record for each.

    Those of one destination come from anywhere, so what stood apart from the others would be one
    line more of the cache that is written to. For the same reason the number of an item is left out
    where all of its row is known without.

    Parameters
    ----------
    width : int
        Elements of a row.
    offset : int
        Where the workspace begins, in bytes.

    Attributes
    ----------
    rows : RowParts or None
        What is known of the row of each item, if that is kept.
    """

    def __init__(self, operands: Operands, width: Any, offset: Any) -> None:
        self._operands, updates = operands, operands.updates
        axes, parts, dtypes = _kept(operands, width)
        count = loops.item_count(operands.problem, operands.sizes)
        fields = records(operands, offset, count, dtypes)
        self._number: Field | None = fields[-1] if len(fields) > len(parts) else None
        known = list(zip(parts, fields[: len(parts)], strict=True))
        self.rows = RowParts(updates, axes, known) if axes else None

    def put(self, to: Any, item: Any) -> None:
        """Emit what is kept of an item, whose position in the order is given."""
        if self._number is not None:
            self._number.store(to, item)
        if self.rows is not None:
            b, k, _ = loops.item_coordinates(self._operands, item)
            update = loops.update_position(self._operands, b, k, loops.int64(0))
            self.rows.read(to, T.bind(update))

    def item_at(self, at: Any) -> Any:
        """The item at a position of the order; any where nobody needs to know."""
        return loops.int64(0) if self._number is None else self._number.load(at, "int64")


def items_bytes(problem: ScatterProblem, sizes: Sizes) -> Any:
    """Bytes of the workspace, for a problem with known sizes."""
    each = _MOST_BYTES if _suits(problem, sizes) else item_bytes(loops.counter_dtype(problem))
    return records_bytes(loops.item_count(problem, sizes), each)


def _kept(operands: Operands, width: Any) -> tuple[int | None, list[Any], list[str]]:
    """How many axes make up a row, its parts, and the types of these and of the item's number.

    Only the number is kept, where nothing is known or too much. It is not, where nobody needs it.
    """
    problem, updates = operands.problem, operands.updates
    axes, number = axes_of_rows(problem, updates, width), loops.counter_dtype(problem)
    if axes is None or not _suits(problem, operands.sizes):
        return None, [], [number]
    parts = row_parts(updates, axes)
    short = fit_in_32_bits(updates, parts)
    own = [str(part.ty.dtype) for part in parts]
    dtypes = ["int32" if each else dtype for each, dtype in zip(short, own, strict=True)]
    if not are_all_of_rows(updates, axes, parts):
        dtypes.append(number)
    fits = record_bytes(dtypes) <= _MOST_BYTES
    return (axes, parts, dtypes) if fits else (None, [], [number])


def _suits(problem: ScatterProblem, sizes: Sizes) -> bool:
    is_simple = problem.fused and problem.batch.is_one and not problem.reduces.is_store
    count = loops.item_count(problem, sizes)
    return is_simple and not (isinstance(count, int) and count < _LEAST_ITEMS)
