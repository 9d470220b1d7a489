"""The schedule of products of many rows in single precision.

It is that of TVM, whose tiles of 64 x 32 elements give a thread 16 of them. With 32 a thread reads
less of what it multiplies: 118 us in place of 190 for 100 000 rows of 128 by 128 x 128, with a bias
and a rectifier, on an H200, where cuBLAS and a kernel for the rectifier take 114. Each element is
summed in the same order.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import (
    IterKind,
    Matmul,
    detect_iter_traits,
    get_in_out_dtypes,
    get_reduction_blocks,
)
from tvm.target import Target

from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

#: Of 36 tiles, the one that took least. A block has 32 rows and 128 columns.
_TILE = Matmul.Config(
    block_size_x=8,
    block_size_y=16,
    vthread_x=2,
    vthread_y=2,
    micro_size_x=2,
    micro_size_y=4,
    micro_size_k=16,
    vector_size=2,
    unroll=256,
    use_shared=True,
    storage_align=True,
    inner_x=False,
)
_COLUMNS = 128
#: The fewest elements of a result: enough for four blocks on each multiprocessor of a large GPU.
_ENOUGH = 528 * 32 * _COLUMNS


class Products(Matmul):
    """TVM's schedule of products with larger tiles, where there are enough of them."""

    def get_configs(self, target: Target) -> Matmul.Config:
        """The tile, for every target that is not refused."""
        return _TILE

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no such product."""
        if not (backend_of(target).schedules_reads and current_options().products):
            return None
        return super().apply(func, target, _tunable) if _is_large(s_tir.Schedule(func)) else None


def _is_large(schedule: s_tir.Schedule) -> bool:
    """Whether a function is one product in single precision whose tiles are whole and many."""
    blocks = schedule.get_child_blocks(get_root_block(schedule))
    reductions = get_reduction_blocks(schedule, blocks)
    if reductions is None or len(reductions) != 1:
        return False
    block = schedule.get(reductions[0])
    if {str(dtype) for dtype in get_in_out_dtypes(block)} != {"float32"}:
        return False
    traits = detect_iter_traits(block)
    if traits is None:
        return False
    columns = _extent(traits[3], IterKind.kIter_J)
    if columns is None or columns % _COLUMNS:
        return False
    batches, rows = (_extent(traits[3], kind) for kind in (IterKind.kIter_S, IterKind.kIter_I))
    # A number of rows that only the run time knows is that of nodes or edges.
    return batches is None or rows is None or batches * rows * columns >= _ENOUGH


def _extent(traits: Any, kind: IterKind) -> int | None:
    """The elements along the axes of a kind; ``None`` if they are not known."""
    extents = [trait.extent for trait in traits if trait.kind == kind]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return prod(int(extent) for extent in extents)
