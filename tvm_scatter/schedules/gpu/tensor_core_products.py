"""The schedule of products of 16-bit floats by tensor cores, with sums in single precision.

A block of threads computes a tile, each warp some fragments of it. What it multiplies is brought to
shared memory as it lies in the tensors, by copies that go on while earlier steps are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import (
    auto_inline_consumer_chain,
    auto_inline_producers,
    get_reduction_blocks,
)
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import varies
from tvm_scatter.passes.analysis.fragment_tiles import SIDE, FragmentTile
from tvm_scatter.passes.analysis.matrix_products import MatrixProduct

from . import fragments
from .later_copies import STEPS, with_later_copies
from .product_axes import spread, with_three_axes

_WARP, _LANES = 32, 8
#: The scope of what a block of threads brings to shared memory.
SHARED = "shared.dyn"


class TensorCoreProduct:
    """A product on its way to a schedule."""

    def __init__(self, schedule: s_tir.Schedule, product: MatrixProduct, tile: FragmentTile):
        self.schedule, self.product, self.tile = schedule, product, tile
        blocks = schedule.get_child_blocks(get_root_block(schedule))
        [self.block] = get_reduction_blocks(schedule, blocks)

    def scheduled(self) -> tirx.PrimFunc | None:
        by_term = with_three_axes(self.schedule, self.block, self._lies_by_term)
        if by_term is None:
            return None
        schedule = self.schedule
        warp, step, term, inner = self._tiled()
        outer = schedule.blockize(inner)
        [element] = schedule.get_child_blocks(outer)
        for operand in range(2):
            shared = self._brought_to_shared_memory(outer, operand, step)
            schedule.storage_align(shared, 0, axis=-2, factor=SIDE, offset=_LANES)
        loaded = [schedule.cache_read(outer, operand, "local") for operand in range(2)]
        for each in loaded:
            schedule.compute_at(each, term)
        result = self._sums(outer, warp)
        cleared = schedule.decompose_reduction(outer, step)
        for loop in schedule.get_loops(cleared)[-2:]:
            schedule.unroll(loop)
        [zero] = schedule.get_child_blocks(cleared)
        schedule.tensorize(schedule.get_loops(zero)[-2], fragments.clears(SIDE))
        dtype = self.product.dtype
        for operand, each in enumerate(loaded):
            name = fragments.loads(dtype, SHARED, operand == 0, by_term[operand])
            schedule.tensorize(self._in_fragments(each), name)
        name = fragments.multiplies(dtype, *by_term)
        schedule.tensorize(schedule.get_loops(element)[-3], name)
        auto_inline_consumer_chain(schedule, result)
        self._written(result)
        schedule.annotate(step, STEPS, 1)
        return with_later_copies(schedule.mod["main"], self.tile.stages)

    def _sums(self, outer: Any, warp: Any) -> Any:
        """The block behind which the sums are in shared memory, stored by fragments."""
        schedule = self.schedule
        result = schedule.cache_write(outer, 0, SHARED)
        sums = schedule.cache_write(outer, 0, "local")
        schedule.reverse_compute_at(sums, warp)
        schedule.reverse_compute_at(result, warp)
        stored = schedule.blockize(self._in_fragments(sums))
        schedule.storage_align(stored, 0, axis=-2, factor=_WARP, offset=_LANES)
        schedule.tensorize(stored, fragments.stores(SHARED))
        return result

    def _lies_by_term(self, operand: Any) -> bool:
        """Whether neighbours of a factor in memory are lines of one term, not terms of a line."""
        auto_inline_producers(self.schedule, operand)
        body = self.schedule.get(operand).body
        _, line, term = body.indices
        lines, terms = (tirx.analysis.undefined_vars(each) for each in (line, term))
        lasts = [load.indices[-1] for load in loads_of(body.value) if len(load.indices)]

        def reads(axes: Any) -> bool:
            return any(varies(last, axis) for last in lasts for axis in axes)

        return reads(lines) and not reads(terms)

    def _tiled(self) -> tuple[Any, Any, Any, Any]:
        """The loops over warps, steps, the terms of fragments, and within a fragment."""
        schedule, tile = self.schedule, self.tile
        sides = [
            (warps, count, SIDE) for warps, count in zip(tile.warps, tile.fragments, strict=True)
        ]
        batch, (row, column), (warps, counts, elements), (step, term, of_term) = self._split(sides)
        schedule.reorder(column, row, *warps, step, term, *counts, *elements, of_term)
        warp = self._spread(batch, column, row, warps)
        for loop in (term, *counts):
            schedule.unroll(loop)
        return warp, step, term, elements[0]

    def _split(self, sides: Sequence[tuple[int, ...]]) -> tuple[Any, tuple[Any, Any], Any, Any]:
        """The loops over batches, over tiles, over the parts of their sides, and over terms."""
        schedule, tile = self.schedule, self.tile
        schedule.pad_einsum(self.block, [1, tile.rows, tile.columns, tile.depth])
        batch, *lines, terms = schedule.get_loops(self.block)
        split = [
            schedule.split(line, [None, *side]) for line, side in zip(lines, sides, strict=True)
        ]
        tiles, *parts = zip(*split, strict=True)
        return batch, tiles, parts, schedule.split(terms, [None, tile.depth // SIDE, SIDE])

    def _spread(self, batch: Any, column: Any, row: Any, warps: Any) -> Any:
        """The loop over warps of a block of threads, which has a tile."""
        spread(self.schedule, batch, column, row)
        warp = self.schedule.fuse(*warps)
        self.schedule.bind(warp, "threadIdx.y")
        return warp

    def _brought_to_shared_memory(self, outer: Any, operand: int, step: Any) -> Any:
        schedule, tile = self.schedule, self.tile
        shared = schedule.cache_read(outer, operand, SHARED)
        schedule.compute_at(shared, step, preserve_unit_loops=True)
        auto_inline_producers(schedule, shared)
        lanes = _LANES if self._has_vectors(schedule.get(shared)) else 1
        loop = schedule.fuse(*schedule.get_loops(shared)[-3:])
        threads = tile.warps[0] * tile.warps[1]
        _, warp, lane, element = schedule.split(loop, [None, threads, _WARP, lanes])
        schedule.bind(warp, "threadIdx.y")
        schedule.bind(lane, "threadIdx.x")
        if lanes > 1:
            schedule.vectorize(element)
        return shared

    def _has_vectors(self, block: Any) -> bool:
        """Whether what is brought there is copied in vectors of neighbours."""
        *_, axis = block.iter_vars
        loads = list(loads_of(block.body))
        if len(loads) != 1:
            return False
        [load] = loads
        shape = load.source.ty.shape
        width = shape[-1] if len(shape) else None
        known = isinstance(width, tirx.IntImm) and int(width) % _LANES == 0
        along = known and load.indices[-1].same_as(axis.var)
        beside = any(varies(index, axis.var) for index in load.indices[:-1])
        same = str(load.source.ty.dtype) == self.product.dtype
        return bool(along and not beside and same)

    def _in_fragments(self, block: Any) -> Any:
        """The loop within a fragment, of a block that goes over a matrix of them."""
        schedule = self.schedule
        (row, of_row), (column, of_column) = (
            schedule.split(loop, [None, SIDE]) for loop in schedule.get_loops(block)[-2:]
        )
        schedule.reorder(row, column, of_row, of_column)
        schedule.unroll(row)
        schedule.unroll(column)
        return of_row

    def _written(self, result: Any) -> None:
        """What follows the product, from shared memory, by the warp that stored it."""
        schedule = self.schedule
        block = schedule.get(result)
        store, (*_, row, column) = block.body, block.iter_vars
        lanes = self._lanes_of(store, column.var)
        loops = schedule.get_loops(result)[-2:]
        last = store.indices[-1:]
        if any(varies(index, row.var) and not varies(index, column.var) for index in last):
            # Neighbours in memory are rows, as those of a convolution are.
            schedule.reorder(*loops[::-1])
            loops = loops[::-1]
        loop = schedule.fuse(*loops)
        turn, lane, element = schedule.split(loop, [None, _WARP, lanes])
        schedule.bind(lane, "threadIdx.x")
        if _reads_beside(store, row.var):
            # NVIDIA's compiler unrolls, so that all reads are on their way before the first is
            # waited for. TVM's text of it would be long.
            schedule.unroll(turn)
            schedule.annotate(turn, "pragma_unroll_explicit", 0)
        if lanes > 1:
            schedule.vectorize(element)

    def _lanes_of(self, store: tirx.BufferStore, column: Any) -> int:
        """As many neighbouring columns as are written by a vector."""
        columns = self.product.columns
        if columns is None or columns % _LANES or not len(store.indices):
            return 1
        vector, lane = tirx.Var("vector", column.ty), tirx.Var("lane", column.ty)
        analyzer = Analyzer()
        analyzer.bind(vector, tvm.ir.Range(0, columns // _LANES))
        analyzer.bind(lane, tvm.ir.Range(0, _LANES))
        *others, last = (
            substitute(index, {column: vector * _LANES + lane})
            - substitute(index, {column: vector * _LANES})
            for index in store.indices
        )
        still = all(analyzer.can_prove_equal(other, 0) for other in others)
        return _LANES if still and analyzer.can_prove_equal(last, lane) else 1


def _reads_beside(store: tirx.BufferStore, row: Any) -> bool:
    """Whether what follows a product reads a tensor of as many rows, such as a residual."""
    loads = [load for load in loads_of(store.value) if str(load.source.scope()) == "global"]
    return any(varies(index, row) for load in loads for index in load.indices)
