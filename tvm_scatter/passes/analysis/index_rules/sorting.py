"""Rules of sorts, searches and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.shapes import is_one
from tvm_scatter.passes.analysis.index_facts import IndexFacts
from tvm_scatter.passes.analysis.integer_ranges import Unproven, number
from tvm_scatter.passes.analysis.searches import of_search
from tvm_scatter.selection.backend import backend_of

from .rule import Known, below, exactly, shape_of


def argsort(call: relax.Call, known: Known) -> IndexFacts:
    return _sorted_positions(call.args[0], int(call.attrs.axis), known)


def topk(call: relax.Call, known: Known) -> IndexFacts | Sequence[IndexFacts | None]:
    [data], attrs = call.args, call.attrs
    axis, count = int(attrs.axis), number(attrs.k)
    size = number(shape_of(data)[axis % data.ty.ndim])
    # With fewer elements than are asked for, the last positions are those of no element.
    if not isinstance(count, int) or count < 1 or not known.ranges.at_most(count, size):
        raise Unproven
    positions = _sorted_positions(data, axis, known)
    if str(attrs.ret_type) == "both":
        return [None, positions]
    if str(attrs.ret_type) != "indices":
        raise Unproven
    return positions


def _sorted_positions(data: Any, axis: int, known: Known) -> IndexFacts:
    """Positions along an axis. Where "not a number" is sorted, TVM may list some twice."""
    if not data.ty.ndim:
        raise Unproven
    axis %= data.ty.ndim
    found = below(number(shape_of(data)[axis]), known)
    integral = "int" in str(data.ty.dtype)
    return found.but(distinct=frozenset([axis] if integral else []))


def sort(call: relax.Call, known: Known) -> IndexFacts:
    if not call.ty.ndim:
        raise Unproven
    facts, axis = known.of(call.args[0]), int(call.attrs.axis) % call.ty.ndim
    up = call.ty.ndim == 1 and not call.attrs.descending
    return facts.but(distinct=facts.distinct & {axis}, ascending=facts.uniform or up)


def bucketize(call: relax.Call, known: Known) -> IndexFacts:
    values, boundaries = call.args
    try:
        facts: IndexFacts | None = known.of(values)
    except Unproven:
        facts = None
    return of_search(shape_of(boundaries)[0], facts)


def true_positions(call: relax.Call, known: Known) -> IndexFacts:
    elements: Any = 1
    for size in shape_of(call.args[0]):
        elements = known.ranges.multiply(exactly(number(size)), exactly(elements)).low
    return below(elements, known).but(distinct=frozenset([0]), ascending=True)


def nonzero(call: relax.Call, known: Known) -> IndexFacts:
    """A row of coordinates for each axis."""
    shape = [number(size) for size in shape_of(call.args[0])] or [1]
    found = below(shape[0], known)
    for size in shape[1:]:
        found = found.but(range=known.ranges.union(found.range, below(size, known).range))
    if len(shape) == 1:
        return found.but(distinct=frozenset([0, 1]), ascending=True)
    return found


def cumsum(call: relax.Call, known: Known) -> IndexFacts:
    [data], axis = call.args, call.attrs.axis
    facts, shape = known.of(data), shape_of(data)
    if not shape or (axis is None and len(shape) > 1):
        raise Unproven
    backend = backend_of(target_of(data))
    if backend.is_gpu and backend.scan is None:
        # TVM's scan reads, without a barrier, what other threads write: nothing proves its sums.
        raise Unproven
    at = 0 if axis is None else int(axis) % len(shape)
    ranges, count = known.ranges, exactly(number(shape[at]))
    # Where there is a sum there is an element. So each lies between zero and what all could be.
    found = ranges.union(ranges.multiply(facts.range, count), exactly(0))
    line = all(is_one(size) for place, size in enumerate(shape) if place != at)
    up, strictly = (ranges.at_most(least, facts.range.low) for least in (0, 1))
    return IndexFacts(
        found, frozenset([at] if strictly else []), ascending=line and up, uniform=False
    )
