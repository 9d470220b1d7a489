"""What a thread keeps of a row: the elements that it has itself, in its registers.

TVM takes a tensor that is local to a thread for the part of a row that lies between its first and
its last element. That part is as long as the row, and where a row has several axes, no compiler
sees which element is where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from .accesses import local


@dataclass(frozen=True)
class _Own:
    """Where a thread keeps its elements.

    Attributes
    ----------
    buffer : buffer
        One element for each turn.
    row : tuple of int
        The sizes of the axes of a row.
    lanes : int
        Threads of a row.
    """

    buffer: Any
    row: Sequence[int]
    lanes: int

    def at(self, indices: Sequence[Any]) -> list[Any]:
        """The place of an element of the row."""
        place: Any = 0
        for index, size in zip(indices[-len(self.row) :], self.row, strict=True):
            place = place * size + index
        return [tirx.floordiv(place, self.lanes)]


def keep_own_elements(
    function: tirx.PrimFunc, kept: Sequence[Any], row: Sequence[int], lanes: int
) -> tirx.PrimFunc:
    """The function, in which each thread has room for its own elements of a row.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        A scheduled function.
    kept : sequence of buffer
        Rows of which each thread computes and reads every ``lanes``-th element.
    row : sequence of int
        The sizes of the last axes of each, which are a row.
    lanes : int
        Threads of a row.
    """
    turns = -(-prod(row) // lanes)
    known = {each: _Own(local(each.name, str(each.dtype), turns), row, lanes) for each in kept}

    def load(found: Any) -> Any:
        own = known.get(found.source)
        return found if own is None else tirx.BufferLoad(own.buffer, own.at(found.indices))

    def store(found: tirx.BufferStore) -> tirx.BufferStore:
        own = known.get(found.buffer)
        if own is None:
            return found
        return tirx.BufferStore(own.buffer, found.value, own.at(found.indices))

    def region(found: Any) -> Any:
        own = known.get(found.source)
        if own is None:
            return found
        [at] = own.at([each.min for each in found.region])
        return tirx.BufferRegion(own.buffer, [tvm.ir.Range.from_min_extent(at, 1)])

    def block(found: s_tir.SBlock) -> s_tir.SBlock:
        allocated = [known[each].buffer if each in known else each for each in found.alloc_buffers]
        return _with_buffers(found, allocated)

    changes = (
        (tvm.ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (tvm.ir.TensorRegion, region),
        (s_tir.SBlock, block),
    )
    return function.with_body(tvm_ffi.structural_map(function.body, changes))


def _with_buffers(block: s_tir.SBlock, allocated: Sequence[Any]) -> s_tir.SBlock:
    return s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        block.body,
        block.init,
        allocated,
        block.match_buffers,
        block.annotations,
    )
