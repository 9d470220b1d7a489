"""Reductions along rows that lie side by side in memory, with what computes the rows from others.

TVM's own schedule gives each row to one thread where rows are short, so that neighbouring threads
read what lies far apart.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import moves
from tvm_scatter.lowering.row_reductions import RowReduction, reducing_blocks, reduction_of

from .gather_form import FILLS_GPU, lanes_of
from .one_block import one_block
from .row_form import row_form_of

#: Elements of the longest row that the threads of a warp reduce, and of one of which nobody knows
#: how many there are.
_LONGEST_ROW = 4096
_LONGEST_UNCOUNTED = 512
#: The most results, one beside the other, that read the same row.
_MOST_TOGETHER = 8
#: A warp for each row keeps a GPU busy with this part of the accesses that fill it.
_BUSY = 8
_REDUCING = (tirx.Add, tirx.Max, tirx.Min)


def plain_reduction(function: tirx.PrimFunc) -> tuple[tirx.PrimFunc, RowReduction] | None:
    """The one reduction of a function, with everything else computed in it.

    ``None`` for a function that does more, or whose reduction TVM spreads better over threads.
    """
    alone = one_block(function) if reducing_blocks(function) else None
    if alone is None:
        return None
    schedule, block = alone
    kinds = "".join(each.kind for each in block.iters)
    if kinds.lstrip("S").strip("R") or "S" not in kinds:
        return None
    if not _reduces(schedule.get(block.block_rv)):
        return None
    found = schedule.mod["main"]
    reduction = reduction_of(found)
    return (found, reduction) if _is_of_rows(reduction) and _fills(reduction) else None


def _reduces(block: s_tir.SBlock) -> bool:
    """Whether a block takes one value after the other into each element."""
    store = block.body
    if block.init is None or not isinstance(block.init, tirx.BufferStore):
        return False
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, _REDUCING):
        return False
    taken = store.value.a
    return isinstance(taken, tvm.ir.TensorLoad) and taken.source.same_as(store.buffer)


def _is_of_rows(reduction: RowReduction) -> bool:
    """Whether neighbours along a row are read several at a time, and no row is read twice."""
    sizes, axis = reduction.sizes, reduction.axes[-1]
    if not all(isinstance(size, int) and size > 0 for size in sizes[reduction.rows :]):
        return False
    loads = list(loads_of(reduction.value))
    along = [load for load in loads if moves(load, axis)]
    wide = [each for each, size in zip(reduction.axes, sizes, strict=True) if size != 1]
    innermost = reduction.axes[reduction.rows - 1]
    if isinstance(sizes[reduction.rows - 1], int) and sizes[reduction.rows - 1] <= _MOST_TOGETHER:
        # Rows that lie beside each other read it again from the cache at once.
        wide = [each for each in wide if not each.same_as(innermost)]
    whole = any(all(moves(load, each) for each in wide) for load in loads)
    return whole and lanes_of(axis, sizes[-1], along)[0] > 1


def _fills(reduction: RowReduction) -> bool:
    """Whether rows are short enough, and as many as keep a GPU busy."""
    rows = 1
    for size in reduction.sizes[: reduction.rows]:
        if not isinstance(size, int):
            return reduction.length <= _LONGEST_UNCOUNTED
        rows *= size
    return (
        reduction.length <= _LONGEST_ROW
        and rows * row_form_of(reduction).group * _BUSY >= FILLS_GPU
    )
