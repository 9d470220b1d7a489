"""Functions that reduce once, and compute an element from each result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from tvm_scatter.emit.expressions import all_of, moves
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

from .row_reductions import reducing_blocks

#: The most elements that one thread of a GPU reduces, if they lie side by side, where the threads
#: of a warp read what lies apart, and if they do not.
_MOST_BESIDE = 16
_MOST_APART = 64


@dataclass(frozen=True)
class OneReduction:
    """A function that reduces once.

    Attributes
    ----------
    schedule : s_tir.Schedule
        Of the function, in which what comes before the reduction is computed in it.
    block : s_tir.schedule.SBlockRV
        The reduction.
    after : s_tir.schedule.SBlockRV, optional
        What computes an element from each of its results, if the results are not the function's.
    reduced : sequence of int or expression
        The sizes of the axes that are reduced.
    beside : bool
        Whether elements that are reduced lie side by side in memory.
    is_sum : bool
        Whether it adds them up.
    """

    schedule: s_tir.Schedule
    block: SBlockRV
    after: SBlockRV | None
    reduced: Sequence[Any]
    beside: bool
    is_sum: bool

    @property
    def is_short(self) -> bool:
        """Whether it reduces so few elements that one thread does."""
        return are_at_most(self.reduced, _MOST_BESIDE if self.beside else _MOST_APART)

    def reduced_loops(self) -> list[LoopRV]:
        """The loops over what is reduced, which are the innermost."""
        return list(self.schedule.get_loops(self.block)[-len(self.reduced) :])


def spreads_reductions(target: Target) -> bool:
    """Whether this package spreads reductions over threads, and not TVM."""
    return backend_of(target).is_gpu and current_options().reductions


def are_at_most(sizes: Sequence[Any], most: int) -> bool:
    """Whether axes of these sizes certainly have no more elements together."""
    return all(isinstance(size, int) for size in sizes) and prod(sizes) <= most


def one_reduction(function: tirx.PrimFunc) -> OneReduction | None:
    """The reduction of a function that has one; ``None`` for others, and for products of matrices.

    A product reads each of its operands again for each row or column of the other.
    """
    if len(reducing_blocks(function)) != 1 or not isinstance(function.body, s_tir.SBlockRealize):
        return None
    schedule = s_tir.Schedule(function)
    blocks = try_inline_contiguous_spatial(schedule, normalize_prim_func(schedule) or [])
    if not blocks or len(blocks) > 2:
        return None
    first, *others = blocks
    kinds = first.dom_kind()
    if kinds.lstrip("S").strip("R") or not kinds.startswith("S") or not kinds.endswith("R"):
        return None
    block = schedule.get(first.block_rv)
    if others and not is_of_each(schedule, first, others[0]):
        return None
    if not others and (len(block.writes) != 1 or not block.writes[0].region):
        return None
    loads = _loads(block)
    wide = [axis.var for axis in first.iters if axis.dom != 1]
    whole = [load for load in loads if all(moves(load, axis) for axis in wide)]
    if not whole:
        return None
    reduced = [axis for axis in first.iters if axis.kind == "R"]
    return OneReduction(
        schedule,
        first.block_rv,
        others[0].block_rv if others else None,
        [axis.dom for axis in reduced],
        any(_is_innermost(load, axis.var) for load in whole for axis in reduced if axis.dom != 1),
        isinstance(getattr(block.body, "value", None), tirx.Add),
    )


def _loads(block: s_tir.SBlock) -> list[Any]:
    """What a block reads, other than its results so far."""
    written = [each.source for each in block.writes]
    loads = all_of(block.body, tvm.ir.TensorLoad)
    return [each for each in loads if not any(each.source.same_as(own) for own in written)]


def _is_innermost(load: Any, axis: Any) -> bool:
    *others, inner = load.indices
    return moves(tirx.BufferLoad(load.source, [*[0 for _ in others], inner]), axis)


def is_of_each(schedule: s_tir.Schedule, before: SBlockInfo, after: SBlockInfo) -> bool:
    """Whether a block computes one element from each result of a reduction."""
    if not schedule.get_loops(after.block_rv) or after.dom_kind().strip("S"):
        return False
    axes = [axis.var for axis in after.iters if axis.dom != 1]
    single = [axis.var for axis in after.iters if axis.dom == 1]
    results = sum(axis.kind == "S" and bool(axis.dom != 1) for axis in before.iters)
    written = [each.source for each in schedule.get(before.block_rv).writes]
    loads = all_of(schedule.get(after.block_rv).body, tvm.ir.TensorLoad)
    own = [load for load in loads if any(load.source.same_as(each) for each in written)]
    return len(axes) == results and all(_reads_at(load, axes, single) for load in own)


def _reads_at(load: Any, axes: Sequence[Any], single: Sequence[Any]) -> bool:
    """Whether a load reads at the axes themselves, in any order."""
    at = [index for index in load.indices if not isinstance(index, tirx.IntImm)]
    at = [index for index in at if not any(index.same_as(axis) for axis in single)]
    found = [axis for axis in axes if any(index.same_as(axis) for index in at)]
    return len(at) == len(axes) == len(found)
