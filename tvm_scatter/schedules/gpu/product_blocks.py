"""Functions of one sum of products, with what they compute of each result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.lowering.one_reduction import is_of_each
from tvm_scatter.lowering.row_reductions import reducing_blocks

from .read_results import place_of_result, with_result

#: The type of sums.
SUM = "float32"


@dataclass(frozen=True)
class ProductBlock:
    """A sum of products along one axis.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        The function, in which everything else is computed.
    axes : list of Var
        The coordinates of a result, and then that of a term.
    sizes : list of (int or expression)
        The number of values of each.
    factors : tuple of expression
        What is multiplied.
    write : callable
        The statement that writes a result, given its coordinates and its value.
    """

    function: tirx.PrimFunc
    axes: list[Any]
    sizes: list[Any]
    factors: tuple[Any, Any]
    write: Callable[[dict[Any, Any], Any], tirx.Stmt]


def product_block(function: tirx.PrimFunc) -> ProductBlock | None:
    """The one sum of a function; ``None`` if it computes something else."""
    if len(reducing_blocks(function)) != 1 or not isinstance(function.body, s_tir.SBlockRealize):
        return None
    schedule = s_tir.Schedule(function)
    blocks = try_inline_contiguous_spatial(schedule, normalize_prim_func(schedule) or [])
    if not blocks or len(blocks) > 2 or blocks[0].dom_kind().count("R") != 1:
        return None
    first, *others = blocks
    if not first.dom_kind().endswith("SR"):
        return None
    if others and not is_of_each(schedule, first, others[0]):
        return None
    store = schedule.get(first.block_rv).body
    write = _writing(store, schedule.get(others[0].block_rv) if others else None)
    if write is None or str(store.buffer.dtype) != SUM:
        return None
    value = store.value
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return None
    axes, sizes = [each.var for each in first.iters], [each.dom for each in first.iters]
    return ProductBlock(schedule.mod["main"], axes, sizes, (value.b.a, value.b.b), write)


def _writing(
    store: Any, after: s_tir.SBlock | None
) -> Callable[[dict[Any, Any], Any], tirx.Stmt] | None:
    """How a result is written, with what is computed from it."""
    if not isinstance(store, tirx.BufferStore):
        return None
    if after is None:

        def written(places: dict[Any, Any], value: Any) -> tirx.Stmt:
            indices = [substitute(index, places) for index in store.indices]
            return tirx.BufferStore(store.buffer, value, indices)

        return written
    result = after.body
    if not isinstance(result, tirx.BufferStore):
        return None
    place = place_of_result(result.value, store.buffer)
    if place is None:
        return None
    pairs = zip(place, store.indices, strict=True)
    known = {at: index for at, index in pairs if isinstance(at, tvm.ir.Var)}
    ones = [axis.var for axis in after.iter_vars if axis.var not in known]
    if any(int(axis.dom.extent) != 1 for axis in after.iter_vars if axis.var in ones):
        return None

    def computed(places: dict[Any, Any], value: Any) -> tirx.Stmt:
        zero = tirx.IntImm("int64", 0)
        own = {at: substitute(index, places) for at, index in known.items()}
        own |= dict.fromkeys(ones, zero)

        element = with_result(result.value, store.buffer, value)
        indices = [substitute(index, own) for index in result.indices]
        return tirx.BufferStore(result.buffer, substitute(element, own), indices)

    return computed
