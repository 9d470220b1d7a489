"""The axes of a product of matrices, and the blocks of threads that they are spread over."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.gpu.matmul import get_index_map

from .bounded_launches import MOST_BLOCKS


def with_three_axes(
    schedule: s_tir.Schedule, block: Any, is_by_term: Callable[[Any], bool]
) -> list[bool] | None:
    """Make a block a product of (batch, row, term) and (batch, column, term).

    Parameters
    ----------
    is_by_term : callable
        Returns whether these last two axes change places, for the block that brings a factor there.

    Returns
    -------
    list of bool, or None
        For both factors, whether they did; ``None`` if it is no product of matrices.
    """
    operands = [schedule.reindex(block, ("read", at)) for at in range(2)]
    result = schedule.reindex(block, ("write", 0))
    maps = get_index_map(schedule.get(block))
    if maps is None:
        return None
    product, *of_operands, of_result = maps
    by_term = []
    for operand, map_ in zip(operands, of_operands, strict=True):
        schedule.transform_layout(operand, ("write", 0), map_)
        by_term.append(is_by_term(operand))
        if by_term[-1]:
            schedule.transform_layout(operand, ("write", 0), lambda s, line, k: (s, k, line))
    schedule.transform_layout(result, ("read", 0), of_result)
    schedule.transform_block_layout(block, product)
    return by_term


def spread(schedule: s_tir.Schedule, batch: Any, column: Any, row: Any) -> None:
    """Give each tile a block of threads, tiles of the same columns one after the other."""
    of_rows, *others = (schedule.get(loop).extent for loop in (row, batch, column))
    known = all(isinstance(extent, tirx.IntImm) for extent in others)
    if known and isinstance(of_rows, tirx.IntImm):
        schedule.bind(schedule.fuse(batch, column, row), "blockIdx.x")
        return
    # A block would divide by the number of tiles again and again, in 64 bits.
    if known and prod(map(int, others)) <= MOST_BLOCKS:
        schedule.bind(schedule.fuse(batch, column), "blockIdx.y")
    else:
        # If there are more of them than a launch has, they take turns.
        schedule.bind(batch, "blockIdx.z")
        schedule.bind(column, "blockIdx.y")
    schedule.bind(row, "blockIdx.x")
