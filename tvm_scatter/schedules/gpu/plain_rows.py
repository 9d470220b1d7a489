"""Reductions along rows that lie side by side in memory, with what computes the rows from others.

TVM's own schedule gives each row to one thread where rows are short, so that neighbouring threads
read what lies far apart.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.lowering.row_reductions import RowReduction, reduction_of

from .gather_form import FILLS_GPU, lanes_of, varies
from .row_form import row_form_of

#: Elements of the longest row that the threads of a warp reduce, and of one of which nobody knows
#: how many there are.
_LONGEST_ROW = 4096
_LONGEST_UNCOUNTED = 512
#: A warp for each row keeps a GPU busy with this part of the accesses that fill it.
_BUSY = 8
_REDUCING = (tirx.Add, tirx.Max, tirx.Min)


def plain_reduction(function: tirx.PrimFunc) -> tuple[tirx.PrimFunc, RowReduction] | None:
    """The one reduction of a function, with everything else computed in it.

    ``None`` for a function that does more, or whose reduction TVM spreads better over threads.
    """
    if not isinstance(function.body, s_tir.SBlockRealize):
        return None
    schedule = s_tir.Schedule(function)
    blocks = try_inline(schedule, normalize_prim_func(schedule) or [])
    if len(blocks) != 1 or not _reduces(schedule.get(blocks[0].block_rv)):
        return None
    kinds = "".join(each.kind for each in blocks[0].iters)
    found = schedule.mod["main"]
    if kinds.lstrip("S").strip("R") or "S" not in kinds or found.body.block.alloc_buffers:
        return None
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
    along = [load for load in loads if any(varies(index, axis) for index in load.indices)]
    wide = [each for each, size in zip(reduction.axes, sizes, strict=True) if size != 1]
    whole = any(all(_reads_along(load, each) for each in wide) for load in loads)
    return whole and lanes_of(axis, sizes[-1], along)[0] > 1


def _reads_along(load: Any, axis: Any) -> bool:
    return any(varies(index, axis) for index in load.indices)


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
