"""The schedules of products of matrices, and the one for single precision.

There a block of threads computes a tile. What it multiplies is brought to shared memory, transposed
so that what a thread reads of it lies side by side, and from there in vectors to its registers.
Each element is summed in the order of its terms. Tiles and their choice are those of
:mod:`tvm_scatter.passes.analysis.matrix_products`.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.dlight.gpu.matmul import (
    auto_inline_consumer_chain,
    auto_inline_producers,
    get_reduction_blocks,
)
from tvm.target import Target

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import is_by_index, varies
from tvm_scatter.passes.analysis.fragment_tiles import FragmentTile
from tvm_scatter.passes.analysis.matrix_products import Tile

from .bounded_launches import with_bounded_launches
from .guarded_vectors import with_guarded_vectors
from .named_extents import with_named_extents
from .own_factors import with_own_factors
from .planned_product import scheduled_product
from .product_axes import spread, with_three_axes
from .tensor_core_products import TensorCoreProduct
from .warpgroup_products import WarpgroupProduct

#: Elements of a vector. Rows of shared memory are so many longer than a multiple of its 32 banks.
_LANES, _BANKS = 4, 32


class Products(ScheduleRule):
    """Products of matrices in tiles that suit their sizes."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is no such product."""
        product = scheduled_product(func, target)
        if product is None:
            return None
        named, restored = with_named_extents(with_own_factors(func))
        tile, schedule = product.tile, s_tir.Schedule(named)
        if isinstance(tile, FragmentTile):
            kind = WarpgroupProduct if tile.by_group else TensorCoreProduct
            scheduled = kind(schedule, product, tile).scheduled()
        else:
            scheduled = _Product(schedule, tile).scheduled()
        if scheduled is None:
            return None
        scheduled = with_guarded_vectors(scheduled, reads_first=isinstance(tile, FragmentTile))
        return s_tir.Schedule(restored(with_bounded_launches(scheduled)))


class _Product:
    """A product on its way to a schedule."""

    def __init__(self, schedule: s_tir.Schedule, tile: Tile) -> None:
        self.schedule, self.tile = schedule, tile
        blocks = schedule.get_child_blocks(get_root_block(schedule))
        [self.block] = get_reduction_blocks(schedule, blocks)

    def scheduled(self) -> tirx.PrimFunc | None:
        schedule, tile, block = self.schedule, self.tile, self.block
        # What a thread reads of a factor in shared memory lies side by side.
        if with_three_axes(schedule, block, lambda _: True) is None:
            return None
        thread, step, term = self._tiled()
        written = schedule.cache_write(block, 0, "local")
        schedule.reverse_compute_at(written, thread, preserve_unit_loops=True)
        across, along = schedule.get_loops(written)[-2:]
        schedule.unroll(across)
        self._in_vectors(along, tile.elements[1])
        for operand in range(2):
            self._brought_to_shared_memory(operand, step)
        for operand, count in enumerate(tile.elements):
            read = schedule.cache_read(block, operand, "local")
            schedule.compute_at(read, term, preserve_unit_loops=True)
            self._in_vectors(schedule.get_loops(read)[-1], count)
        auto_inline_consumer_chain(schedule, written)
        schedule.decompose_reduction(block, step)
        return schedule.mod["main"]

    def _tiled(self) -> tuple[Any, Any, Any]:
        """The loops over threads, over what is brought to shared memory, and over its terms."""
        schedule, tile = self.schedule, self.tile
        schedule.pad_einsum(self.block, [1, tile.rows, tile.columns, tile.depth])
        batch, *lines, terms = schedule.get_loops(self.block)
        tiles, parts, threads, elements = zip(
            *(
                schedule.split(line, [None, *each])
                for line, each in zip(
                    lines,
                    zip(tile.parts, tile.threads, tile.elements, strict=True),
                    strict=True,
                )
            ),
            strict=True,
        )
        step, term = schedule.split(terms, [None, tile.depth])
        row, column = tiles
        schedule.reorder(column, row, *parts[::-1], *threads, step, term, *elements)
        spread(schedule, batch, column, row)
        for part, name in zip(parts, ("vthread.x", "vthread.y"), strict=True):
            schedule.bind(part, name)
        thread = schedule.fuse(*threads)
        schedule.bind(thread, "threadIdx.x")
        for loop in (term, elements[0]):
            schedule.unroll(loop)
        self._in_vectors(elements[1], tile.elements[1])
        # NVIDIA's compiler unrolls; TVM's text of it would be some thousand lines.
        schedule.annotate(thread, "pragma_unroll_explicit", 0)
        return thread, step, term

    def _brought_to_shared_memory(self, operand: int, step: Any) -> None:
        """By neighbouring threads from neighbouring addresses, whatever the order of the axes."""
        schedule, tile = self.schedule, self.tile
        shared = schedule.cache_read(self.block, operand, "shared")
        schedule.compute_at(shared, step, preserve_unit_loops=True)
        auto_inline_producers(schedule, shared)
        batch, term, line = schedule.get_loops(shared)[-3:]
        _, of_term, _ = schedule.get(shared).iter_vars
        loads = list(loads_of(schedule.get(shared).body))
        if any(varies(index, of_term.var) for load in loads for index in load.indices[-1:]):
            # Neighbours in memory are terms of one sum.
            schedule.reorder(line, term)
            term, line = line, term
        loop = schedule.fuse(batch, term, line)
        # Rows that are read by index are found once for several elements.
        by_index = any(map(is_by_index, loads))
        threads = tile.threads[0] * tile.threads[1]
        turn, thread, element = schedule.split(loop, [None, threads, _LANES if by_index else 1])
        schedule.unroll(turn)
        schedule.bind(thread, "threadIdx.x")
        schedule.vectorize(element)
        schedule.storage_align(shared, 0, axis=1, factor=_BANKS, offset=_LANES)

    def _in_vectors(self, loop: Any, count: int) -> None:
        """A loop over neighbours in vectors, of which there may be several."""
        vectors, vector = self.schedule.split(loop, [None, min(count, _LANES)])
        self.schedule.unroll(vectors)
        self.schedule.vectorize(vector)
