"""Functions that reduce rows, and compute rows from what they found: softmaxes, normalisations.

What they read may be computed in front, by the same function. Each element of that is computed once
and kept, where several reductions need it, or a reduction and the rows that are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial
from tvm.s_tir.schedule import SBlockRV

from tvm_scatter.emit.expressions import all_of, moves

from .one_reduction import are_at_most

#: The shortest row that a warp is given. Shorter ones are reduced by single threads.
SHORTEST_ROW = 17
#: The longest row that a warp of a GPU has for itself, and that a block has.
WARP_ROW = 1024
BLOCK_ROW = 8192
#: So many rows are kept, at most: that is two registers of a thread for each element that it has.
_MOST_KEPT = 2


@dataclass(frozen=True)
class ComputedRows:
    """A function of rows.

    Attributes
    ----------
    schedule : s_tir.Schedule
        Of the function, in which what need not be kept is computed where it is read.
    kept : tuple of s_tir.schedule.SBlockRV
        What computes elements that are kept, in the order in which they need each other.
    reductions : tuple of s_tir.schedule.SBlockRV
        The reductions, in the order in which they need each other.
    last : s_tir.schedule.SBlockRV
        What computes the rows that are written, or a number for each.
    outer : int
        How many of its axes count rows. The others, if there are any, are those of a row.
    row : tuple of int
        The sizes of the axes of a row.
    """

    schedule: s_tir.Schedule
    kept: tuple[SBlockRV, ...]
    reductions: tuple[SBlockRV, ...]
    last: SBlockRV
    outer: int
    row: tuple[int, ...]

    @property
    def length(self) -> int:
        """The elements of a row."""
        return prod(self.row)


def computed_rows(function: tirx.PrimFunc) -> ComputedRows | None:
    """The rows that a function computes, if a warp or a block of a GPU can have each for itself."""
    if not isinstance(function.body, s_tir.SBlockRealize):
        return None
    schedule = s_tir.Schedule(function)
    blocks = normalize_prim_func(schedule) or []
    row = _row_of(blocks)
    if row is None or not are_at_most(row, BLOCK_ROW):
        return None
    kept = _kept(schedule, blocks, row)
    left = _inlined(schedule, blocks, kept)
    reductions = [each for each in left if each.is_reduction()]
    others = [each for each in left if not each.is_reduction() and each not in kept]
    if len(others) > 1 or (others and left[-1] is not others[0]):
        return None
    if not kept and not are_at_most(row, WARP_ROW):
        return None
    if not all(_reads_elements(schedule, each) for each in reductions):
        return None
    if not _are_of_rows(schedule, kept, reductions, others, row):
        return None
    last = others[0].block_rv if others else _copied(schedule, reductions[-1])
    if last is None:
        return None
    outer = len(schedule.get_loops(last))
    if others and _is_of_rows(others[0], reductions[0], row):
        outer -= len(row)
    return ComputedRows(
        schedule,
        tuple(each.block_rv for each in kept),
        tuple(each.block_rv for each in reductions),
        last,
        outer,
        row,
    )


def _copied(schedule: s_tir.Schedule, reduction: SBlockInfo) -> SBlockRV | None:
    """What writes the results of a reduction, which threads then have for themselves."""
    if len(schedule.get(reduction.block_rv).writes) != 1:
        return None
    return schedule.cache_write(reduction.block_rv, 0, "local")


def _row_of(blocks: Sequence[SBlockInfo]) -> tuple[int, ...] | None:
    """The sizes of the axes that all reductions of some blocks have last, if they are known."""
    reductions = [each for each in blocks if each.is_reduction()]
    reduced = [[axis.dom for axis in each.iters if axis.kind == "R"] for each in reductions]
    rows = {tuple(size if isinstance(size, int) else 0 for size in sizes) for sizes in reduced}
    if len(rows) != 1:
        return None
    (row,) = rows
    return row if all(row) else None


def _kept(
    schedule: s_tir.Schedule, blocks: Sequence[SBlockInfo], row: Sequence[int]
) -> list[SBlockInfo]:
    """What is computed in front of all reductions, and needed in several places."""
    readers = _readers(schedule, blocks)
    first = next(each for each in blocks if each.is_reduction())
    behind: set[int] = set()
    for at, block in enumerate(blocks):
        if block.is_reduction() or at in behind:
            behind |= readers[at]
    places: dict[int, set[int]] = {}
    found: list[SBlockInfo] = []
    for at in reversed(range(len(blocks))):
        block = blocks[at]
        # What is computed where it is read is needed where its reader's result is.
        places[at] = set().union(*(places.get(each, {each}) for each in readers[at]))
        if block.is_reduction() or not readers[at]:
            del places[at]
        elif len(places[at]) < 2 or at in behind or len(found) == _MOST_KEPT:
            continue
        elif _is_of_rows(block, first, row):
            del places[at]
            found.insert(0, block)
    return found


def _readers(schedule: s_tir.Schedule, blocks: Sequence[SBlockInfo]) -> Mapping[int, set[int]]:
    """The places of the blocks that read what each block writes."""
    every = [schedule.get(each.block_rv) for each in blocks]
    return {
        at: {
            other
            for other, reader in enumerate(every)
            if other != at
            for read in reader.reads
            if any(read.source.same_as(written.source) for written in block.writes)
        }
        for at, block in enumerate(every)
    }


def _inlined(
    schedule: s_tir.Schedule, blocks: Sequence[SBlockInfo], kept: Sequence[SBlockInfo]
) -> list[SBlockInfo]:
    """Compute everything else where it is read; what is left, in order."""
    left: list[SBlockInfo] = []
    part: list[SBlockInfo] = []
    for block in blocks:
        part.append(block)
        if block in kept:
            *front, own = part
            left += [*try_inline_contiguous_spatial(schedule, front), own]
            part = []
    return left + try_inline_contiguous_spatial(schedule, part)


def _are_of_rows(
    schedule: s_tir.Schedule,
    kept: Sequence[SBlockInfo],
    reductions: Sequence[SBlockInfo],
    others: Sequence[SBlockInfo],
    row: Sequence[int],
) -> bool:
    """Whether all reduce or compute the same rows, and read of each other those of their own."""
    first = reductions[0]
    if not all(_is_of_rows(each, first, row) for each in (*kept, *reductions)):
        return False
    if not all(_is_of_rows(each, first, row) or _is_of_each(each, first, row) for each in others):
        return False
    of_rows, of_elements = (
        [written.source for each in blocks for written in schedule.get(each.block_rv).writes]
        for blocks in (reductions, kept)
    )
    for block in (*kept, *reductions, *others):
        is_wide = _is_of_rows(block, first, row)
        count = len(block.iters) - len(row) if is_wide else len(block.iters)
        axes, inner = block.iters[:count], [axis.var for axis in block.iters[count:]]
        outer = [axis.var for axis in axes if axis.dom != 1]
        every = [*outer, *inner]
        single = [axis.var for axis in axes if axis.dom == 1]
        for load in all_of(schedule.get(block.block_rv).body, tvm.ir.TensorLoad):
            known = ((of_rows, outer), (of_elements, every))
            found = [axes for own, axes in known if any(map(load.source.same_as, own))]
            if not all(_is_at(load, axes, single) for axes in found):
                return False
    return True


def _is_of_rows(block: SBlockInfo, first: SBlockInfo, row: Sequence[int]) -> bool:
    """Whether the axes of a block are those of a reduction; axes of one element may lack."""
    axes, kind = block.iters, "R" if block.is_reduction() else "S"
    if block.dom_kind() != "S" * (len(axes) - len(row)) + kind * len(row):
        return False
    if [axis.dom for axis in axes[-len(row) :]] != list(row):
        return False
    return _have_same_sizes(axes[: -len(row)], first.iters[: -len(row)])


def _reads_elements(schedule: s_tir.Schedule, reduction: SBlockInfo) -> bool:
    """Whether something is read for each element of each row; a product of matrices reads none."""
    axes = [axis.var for axis in reduction.iters if axis.dom != 1]
    loads = all_of(schedule.get(reduction.block_rv).body, tvm.ir.TensorLoad)
    return any(all(moves(load, axis) for axis in axes) for load in loads)


def _is_of_each(block: SBlockInfo, first: SBlockInfo, row: Sequence[int]) -> bool:
    """Whether a block computes a number for each row."""
    is_plain = block.dom_kind() == "S" * len(block.iters)
    return is_plain and _have_same_sizes(block.iters, first.iters[: -len(row)])


def _have_same_sizes(some: Sequence[Any], others: Sequence[Any]) -> bool:
    one, other = ([axis.dom for axis in axes if axis.dom != 1] for axes in (some, others))
    return len(one) == len(other) and all(map(tvm_ffi.structural_equal, one, other))


def _is_at(load: Any, axes: Sequence[Any], single: Sequence[Any]) -> bool:
    """Whether a load reads at the axes themselves, and at the first place of axes of one."""
    at = [index for index in load.indices if not isinstance(index, tirx.IntImm)]
    at = [index for index in at if not any(index.same_as(axis) for axis in single)]
    return len(at) == len(axes) and all(map(lambda one, other: one.same_as(other), at, axes))
