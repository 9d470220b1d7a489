"""Products of a few rows with matrices whose rows lie in memory one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import is_by_index, varies
from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.lowering.one_reduction import is_of_each
from tvm_scatter.lowering.row_reductions import reducing_blocks

from .gather_form import has_vectors, neighbours_along
from .read_results import place_of_result, with_result

#: The most rows, and the fewest terms of a sum.
_MOST_ROWS, _FEWEST_TERMS = 8, 64
#: Bytes of an access.
_ACCESS_BYTES = 16
#: The type of sums.
SUM = "float32"


@dataclass(frozen=True)
class FewRowProduct:
    """A product of few rows.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        The function, in which everything else is computed.
    axes : list of Var
        The coordinates of a result, and then that of a term.
    sizes : list of (int or expression)
        The number of values of each.
    rows : list of Var
        The coordinates of the rows, of which only the first factor depends.
    factor : expression
        An element of the first factor, at these coordinates.
    load : TensorLoad
        The element of the matrix.
    write : callable
        The statement that writes a result, given its coordinates and its value.
    """

    function: tirx.PrimFunc
    axes: list[Any]
    sizes: list[Any]
    rows: list[Any]
    factor: Any
    load: Any
    write: Callable[[dict[Any, Any], Any], tirx.Stmt]

    @property
    def lanes(self) -> int:
        """The columns that a thread reads by one access."""
        widest = _ACCESS_BYTES // element_bytes(self.load.source)
        return gcd(neighbours_along(self.load, self.axes[-2]), self.sizes[-2], widest)


def few_row_product(function: tirx.PrimFunc) -> FewRowProduct | None:
    """The one product of a function, if it is of a few rows; ``None`` otherwise."""
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
    block = schedule.get(first.block_rv)
    axes, sizes = [each.var for each in first.iters], [each.dom for each in first.iters]
    write = _writing(block.body, schedule.get(others[0].block_rv) if others else None)
    factors = _factors(block.body, axes)
    if write is None or factors is None:
        return None
    factor, load = factors
    rows = [
        axis
        for axis, size in zip(axes[:-2], sizes, strict=False)
        if size != 1 and not any(varies(index, axis) for index in load.indices)
    ]
    found = FewRowProduct(schedule.mod["main"], axes, sizes, rows, factor, load, write)
    return found if _suits(found) else None


def _factors(store: Any, axes: Sequence[Any]) -> tuple[Any, Any] | None:
    """The first factor, and what is loaded for the second, whose neighbours are columns."""
    value = store.value
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return None
    if str(store.buffer.dtype) != SUM:
        return None
    *_, column, term = axes
    for factor, other in ((value.b.a, value.b.b), (value.b.b, value.b.a)):
        load = other.value if isinstance(other, tirx.Cast) else other
        if not isinstance(load, tvm.ir.TensorLoad) or not load.indices or varies(factor, column):
            continue
        *outer, last = load.indices
        is_along = last.same_as(column) and not any(varies(index, column) for index in outer)
        by_index = is_by_index(load) or any(map(is_by_index, loads_of(factor)))
        if is_along and varies(factor, term) and not by_index:
            return (factor, load) if any(varies(index, term) for index in outer) else None
    return None


def _suits(found: FewRowProduct) -> bool:
    *outer, columns, terms = found.sizes
    counts = dict(zip(found.axes, found.sizes, strict=True))
    rows = [counts[axis] for axis in found.rows]
    if not isinstance(columns, int) or not all(isinstance(each, int) for each in rows):
        return False
    if isinstance(terms, int) and terms < _FEWEST_TERMS:
        return False
    if prod(rows) > _MOST_ROWS or 0 in outer or not has_vectors(found.load.source):
        return False
    return found.lanes > 1


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
