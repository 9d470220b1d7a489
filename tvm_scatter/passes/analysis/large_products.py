"""Products in single precision that have many whole tiles."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import (
    IterKind,
    detect_iter_traits,
    get_in_out_dtypes,
    get_reduction_blocks,
)

#: The columns of a tile. It has 32 rows.
COLUMNS = 128
#: The fewest elements of a result: enough for four tiles on each multiprocessor of a large GPU.
_ENOUGH = 528 * 32 * COLUMNS


def blocks_of_columns(function: tirx.PrimFunc) -> int | None:
    """How many tiles lie side by side, each of which reads all of the rows.

    Parameters
    ----------
    function : tirx.PrimFunc
        A function that is not scheduled yet.

    Returns
    -------
    blocks : int or None
        ``None`` if the function is not one product in single precision whose tiles are whole and
        many.
    """
    schedule = s_tir.Schedule(function)
    blocks = schedule.get_child_blocks(get_root_block(schedule))
    reductions = get_reduction_blocks(schedule, blocks)
    if reductions is None or len(reductions) != 1:
        return None
    block = schedule.get(reductions[0])
    if {str(dtype) for dtype in get_in_out_dtypes(block)} != {"float32"}:
        return None
    traits = detect_iter_traits(block)
    if traits is None:
        return None
    columns = _extent(traits[3], IterKind.kIter_J)
    if columns is None or columns % COLUMNS:
        return None
    batches, rows = (_extent(traits[3], kind) for kind in (IterKind.kIter_S, IterKind.kIter_I))
    # A number of rows that only the run time knows is that of nodes or edges.
    is_large = batches is None or rows is None or batches * rows * columns >= _ENOUGH
    return columns // COLUMNS if is_large else None


def _extent(traits: Any, kind: IterKind) -> int | None:
    """The elements along the axes of a kind; ``None`` if they are not known."""
    extents = [trait.extent for trait in traits if trait.kind == kind]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return prod(int(extent) for extent in extents)
