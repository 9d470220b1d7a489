"""What it costs on a CPU to reduce updates that are in the order of their destinations."""

from __future__ import annotations

from typing import Any

from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.work import Terms, Work

from .costs import LINE_BYTES, combine_rows, convert, is_extreme_of_floats
from .memory_costs import ALONE, again, misses, read_bytes

#: The part of the time of combining that is left where sums stay in registers, and the bytes of a
#: row that do so.
_IN_REGISTERS, _REGISTER_BYTES = 0.5, 1024
#: How many times as long a minimum or maximum of floats takes there: NaNs and zeros have an order.
_EXTREME = 2.0


def in_order(work: Work, workers: Any) -> Terms:
    """Reducing updates in the order of their destinations, each of which is written once."""
    # Of plain updates of one place only the last is read.
    rows = work.touched if work.problem.reduces.is_store else work.items
    apart = misses(work, workers, rows, work.update_bytes)
    if work.problem.fused:
        # Rows are read from anywhere in any order of the updates. But where they are is read in
        # order elsewhere: an index of the size of this one. And blocks of columns of one row are
        # read one after the other elsewhere.
        leaves = ALONE * work.misses(rows, work.index_bytes)
        apart = (1 - _in_one_block(work)) * apart + leaves
    # Updates that are apart move a line of the cache each.
    line = LINE_BYTES * work.missed(work.update_bytes)
    return {
        "streams": work.streams(work.copied_bytes + work.index_bytes) + again(work),
        "rows": work.streams(read_bytes(work, rows * larger(work.row_bytes, line))),
        # Batches that share an index are visited one after the other for each place.
        "batches": work.cycles(rows) / workers if work.problem.shares_index else 0.0,
        "misses": apart,
        "updates": _combine_in_registers(work, workers, rows),
    }


def _combine_in_registers(work: Work, workers: Any, rows: Any) -> Any:
    """Combining rows of updates that follow each other by destination, divided among workers."""
    factor = _EXTREME if is_extreme_of_floats(work) else 1.0
    factor = factor * (1 - (1 - _IN_REGISTERS) * _in_one_block(work))
    return (factor * combine_rows(work, rows) + convert(work, rows)) / workers


def _in_one_block(work: Work) -> Any:
    """The part of a row whose sums stay in registers. The others are read in blocks of columns."""
    row = larger(work.row_bytes, 1.0)
    return smaller(row, _REGISTER_BYTES) / row
