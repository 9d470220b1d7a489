"""Whatever has results that are computed apart from each other: shared among the threads.

LLVM unrolls short inner loops. Then it may make vectors of the loop around them, whose elements are
far apart in memory, or write backwards. So no inner loop that LLVM could unroll is left to it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.dlight import SBlockInfo
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule
from tvm.target import Target

from .blocks import indices_read, lie_side_by_side, uses
from .inlining import inlined
from .machine import is_worth_threads, registers

#: Elements along the sides of a tile of a transpose: a line of memory, of most types.
_TILE = 16
#: Elements of a row that is read from as many lines of memory, for which the nearest cache has
#: room; of a tensor that is in some cache. Lines whose distance is a multiple of so many bytes
#: share a part of the cache.
_SHORT_ROW, _FITS, _SHARED_BYTES = 128, 1 << 20, 256
_BRANCH = tvm.ir.Op.get("prim.if_then_else")


class Spatial(CPUScheduleRule):
    """The outer loops in parallel, the innermost one in vectors."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if its loops are not known to be independent."""
        if not self.is_target_available(target):
            return None
        schedule = s_tir.Schedule(func)
        blocks = inlined(schedule)
        if not blocks:
            return None
        for block in blocks:
            _share(schedule, block, target)
        return schedule


def _share(schedule: s_tir.Schedule, block: SBlockInfo, target: Target) -> None:
    kinds = block.dom_kind()
    loops = schedule.get_loops(block.block_rv)
    if "O" in kinds or len(loops) != len(kinds):
        return
    outer = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    inner = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    sums = inner
    sizes = [each.dom for each in block.iters if each.kind == "S"]
    in_rows = len(outer) > 1 and _fill_threads(sizes[:-1])
    across = None if inner else _across(schedule, block)
    if across is not None:
        outer, inner = _tiled(schedule, outer, across)
    elif not inner and in_rows and not _is_one_row(schedule, block):
        outer, row = outer[:-1], outer[-1]
        inner = _in_vectors(schedule, block, row, target)
    if outer and is_worth_threads(block.dom()):
        schedule.reorder(*outer, *inner)
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    elif outer and sums:
        schedule.reorder(*outer, *sums)
    if sums:
        # The loop may have no turns; the result is set all the same.
        schedule.decompose_reduction(block.block_rv, sums[0])


def _across(schedule: s_tir.Schedule, block: SBlockInfo) -> int | None:
    """The number of the loop along which a tensor lies that is written along the innermost one.

    ``None`` if there is none, or too little is written for lines of memory to be read again.
    """
    variables = [each.var for each in block.iters]
    found = schedule.get(block.block_rv)
    if not _are([each.min for each in found.writes[0].region], variables):
        return None
    for buffer, indices in zip(
        (each.source for each in found.reads), indices_read(found), strict=True
    ):
        along = [at for at, each in enumerate(variables) if indices and uses(indices[-1], each)]
        if len(along) != 1 or along[0] == len(variables) - 1:
            continue
        sizes = [block.iters[at].dom for at in (along[0], -1)]
        if not all(not isinstance(size, int) or size >= 2 * _TILE for size in sizes):
            continue
        moved = [at for at, each in enumerate(indices) if uses(each, variables[-1])]
        if moved and not _stays_in_caches(
            [each.dom for each in block.iters], buffer.shape[moved[-1] + 1 :], buffer.dtype.bits
        ):
            return along[0]
    return None


def _stays_in_caches(sizes: list[Any], step: Any, bits: Any) -> bool:
    """Whether the lines of memory that a short row is read from are all there for the next row."""
    if not all(isinstance(size, int | tirx.IntImm) for size in (*sizes, *step)):
        return False
    distance = prod(int(size) for size in step) * max(int(bits) // 8, 1)
    short = sizes[-1] <= _SHORT_ROW and prod(sizes) <= _FITS
    return short and distance % _SHARED_BYTES != 0


def _tiled(schedule: s_tir.Schedule, loops: list[Any], across: int) -> tuple[list[Any], list[Any]]:
    """Tiles of two loops: all loops around them, and those within."""
    around, tiles, within = [], [], []
    for at, loop in enumerate(loops):
        if at in (across, len(loops) - 1):
            tile, inside = schedule.split(loop, [None, _TILE])
            tiles.append(tile)
            within.append(inside)
        else:
            around.append(loop)
    schedule.reorder(*around, *tiles, *within)
    return [*around, *tiles], within


def _is_one_row(schedule: s_tir.Schedule, block: SBlockInfo) -> bool:
    """Whether each element is computed from the elements at its own place, and from scalars."""
    variables = [each.var for each in block.iters]
    found = schedule.get(block.block_rv)
    written = [[each.min for each in region.region] for region in found.writes]
    return all(
        _are(indices, variables) or not any(uses(i, v) for i in indices for v in variables)
        for indices in indices_read(found)
    ) and all(_are(indices, variables) for indices in written)


def _are(indices: list[Any], variables: list[Any]) -> bool:
    return len(indices) == len(variables) and all(
        index.same_as(variable) for index, variable in zip(indices, variables, strict=True)
    )


def _in_vectors(schedule: s_tir.Schedule, block: SBlockInfo, row: Any, target: Target) -> list[Any]:
    """Make vectors of a row, if that is possible; returns its loops."""
    last = block.iters[-1]
    found = schedule.get(block.block_rv)
    if not lie_side_by_side(indices_read(found), last.var) or not _has_vectors(found, last.var):
        return [row]
    bits = max(region.source.dtype.bits for region in [*found.reads, *found.writes])
    lanes = _lanes(last.dom, registers(target).lanes(int(bits)))
    if lanes is None:
        return [row]
    vectors, lane = schedule.split(row, [None, lanes])
    schedule.vectorize(lane)
    return [vectors, lane]


def _lanes(count: Any, lanes: int) -> int | None:
    """The numbers of a vector; ``None`` where LLVM finds a better one."""
    if not isinstance(count, int) or count < 2:
        return None
    if count <= 2 * lanes:
        return count
    sizes = [size for size in (lanes, lanes // 2) if size > 1 and count % size == 0]
    return sizes[0] if sizes else None


def _has_vectors(block: s_tir.SBlock, row: Any) -> bool:
    """Whether TVM can compute a block in vectors: it has none of booleans or of branches.

    Nor can it write one number of bfloat16 along a row, or keep what a block has for itself apart
    for each element of a vector.
    """
    if block.alloc_buffers:
        return False
    if any(region.source.dtype == "bool" for region in [*block.reads, *block.writes]):
        return False
    moves = any(uses(index, row) for indices in indices_read(block) for index in indices)
    if not moves and any(region.source.dtype == "bfloat16" for region in block.writes):
        return False
    branches: list[Any] = []

    def visit(call: Any) -> None:
        if call.op.same_as(_BRANCH):
            branches.append(call)

    tvm_ffi.structural_walk(block.body, [(tvm.ir.Call, visit)], order="post")
    return not branches


def _fill_threads(sizes: list[Any]) -> bool:
    """Whether so many turns are shared evenly among the threads of most CPUs."""
    return not all(isinstance(size, int) for size in sizes) or prod(sizes) >= 64
