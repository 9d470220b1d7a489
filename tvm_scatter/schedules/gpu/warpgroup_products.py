"""The schedule of products of 16-bit floats by tensor cores that four warps use together.

It is that of :mod:`.tensor_core_products`, except that what is multiplied goes from shared memory
to the tensor cores, while the threads bring what comes next.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain

from tvm_scatter.passes.analysis.fragment_tiles import SIDE

from . import fragments, warpgroups
from .later_copies import STEPS, with_later_copies
from .product_axes import with_three_axes
from .tensor_core_products import SHARED, TensorCoreProduct
from .turned_rows import with_turned_rows


class WarpgroupProduct(TensorCoreProduct):
    """A product on its way to a schedule."""

    def scheduled(self) -> tirx.PrimFunc | None:
        by_term = with_three_axes(self.schedule, self.block, self._lies_by_term)
        if by_term is None:
            return None
        schedule = self.schedule
        warp, step, inner = self._tiled_for_groups()
        outer = schedule.blockize(inner)
        [element] = schedule.get_child_blocks(outer)
        shared = [self._in_rows(outer, operand, step, flag) for operand, flag in enumerate(by_term)]
        result = self._sums(outer, warp)
        cleared = schedule.decompose_reduction(outer, step)
        [zero] = schedule.get_child_blocks(cleared)
        columns = self._columns
        schedule.tensorize(schedule.get_loops(zero)[-2], fragments.clears(columns))
        name = warpgroups.multiplies(self.product.dtype, SHARED, columns, *by_term)
        schedule.tensorize(schedule.get_loops(element)[-3], name)
        auto_inline_consumer_chain(schedule, result)
        self._written(result)
        schedule.annotate(step, STEPS, 1)
        tensors = [schedule.get(each).writes[0].source for each in shared]
        function = with_turned_rows(schedule.mod["main"], tensors)
        return with_later_copies(function, self.tile.stages, by_group=True)

    @property
    def _columns(self) -> int:
        return SIDE * self.tile.fragments[1]

    def _tiled_for_groups(self) -> tuple[Any, Any, Any]:
        """The loops over warps and over steps, and those within 16 rows and 16 terms."""
        schedule, tile = self.schedule, self.tile
        sides = [(tile.warps[0], SIDE), (tile.warps[1], self._columns)]
        batch, (row, column), (warps, elements), (step, term, of_term) = self._split(sides)
        # Four warps that follow each other have the same columns.
        warps = warps[::-1]
        schedule.reorder(column, row, *warps, step, term, *elements, of_term)
        warp = self._spread(batch, column, row, warps)
        schedule.unroll(term)
        return warp, step, elements[0]

    def _in_rows(self, outer: Any, operand: int, step: Any, by_term: bool) -> Any:
        """The block that brings a factor to shared memory, in rows of 64 elements."""

        def map_(batch: Any, first: Any, second: Any) -> list[Any]:
            line, term = (second, first) if by_term else (first, second)
            return [batch, *warpgroups.place(line, term, by_term)]

        shared = self._brought_to_shared_memory(outer, operand, step)
        self.schedule.transform_layout(shared, ("write", 0), map_)
        return shared
