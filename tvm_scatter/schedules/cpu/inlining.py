"""Computes tensors where they are read, but those of which an expression would become too long.

A value that is read twice is computed twice where it is read. In a recurrence that doubles the
expression in each step, and TVM simplifies a choice by a choice again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import SBlockInfo, normalize_prim_func, try_inline_contiguous_spatial

from tvm_scatter.emit.expression_length import ExpressionLength
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.emit.stored_between import READ, Step, stored_between

from .library_calls import called_again

#: The most choices by what was chosen, one in another. A third takes TVM twenty times as long, and
#: what LLVM makes of two clamps is slower than if the first is stored.
_MOST_CHOICES = 2


def inlined(schedule: s_tir.Schedule) -> list[SBlockInfo]:
    """Inline what is computed from single elements; returns the blocks that are left.

    Returns
    -------
    blocks : list of SBlockInfo
        In the order in which they run; empty if the loops are not those of blocks.
    """
    blocks = normalize_prim_func(schedule) or []
    stored = _stored(schedule, blocks)
    if not stored:
        return try_inline_contiguous_spatial(schedule, blocks)
    # No block is inlined into the one in front of it, which may be stored.
    return [each for each in blocks if not _is_inlined(schedule, each, stored)]


def _stored(schedule: s_tir.Schedule, blocks: Sequence[SBlockInfo]) -> set[Any]:
    """The buffers to store, so that no expression is too long."""
    results = set(schedule.mod["main"].params)
    steps: dict[Any, Step] = {}
    bodies: dict[Any, Any] = {}
    for each in blocks:
        block = schedule.get(each.block_rv)
        for buffer in _written(block):
            is_stored = buffer in results or not each.is_injective()
            steps[buffer] = _step(block, buffer, is_stored)
            bodies[buffer] = block.body
    return stored_between(steps, _MOST_CHOICES) | called_again(steps, bodies)


def _step(block: s_tir.SBlock, buffer: Any, is_stored: bool) -> Step:
    operands = list({load.source: None for load in all_of(block.body, tvm.ir.TensorLoad)})
    return Step(operands, partial(_length, block, buffer, operands), is_stored)


def _length(
    block: s_tir.SBlock, buffer: Any, operands: Sequence[Any], lengths: Sequence[ExpressionLength]
) -> ExpressionLength:
    """The length of what a block stores in a buffer, given those of what it reads."""
    known = dict(zip(operands, lengths, strict=True))
    stores = [each for each in all_of(block.body, tirx.BufferStore) if each.buffer.same_as(buffer)]
    found = [ExpressionLength.of(store, known) for store in stores]
    return max(found, key=lambda each: (each.choices, each.nodes), default=READ)


def _written(block: s_tir.SBlock) -> list[Any]:
    return [region.source for region in block.writes]


def _is_inlined(schedule: s_tir.Schedule, block: SBlockInfo, stored: set[Any]) -> bool:
    """Inline a block, if that is wanted and possible."""
    written = _written(schedule.get(block.block_rv))
    if not block.is_injective() or not stored.isdisjoint(written):
        return False
    try:
        schedule.compute_inline(block.block_rv)
    except s_tir.ScheduleError:
        return False
    return True
