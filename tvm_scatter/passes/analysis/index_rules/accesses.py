"""Rules of reads and writes by index."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.reads import read_of
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.read_forms import ByAxes
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import same_shape, same_size
from tvm_scatter.passes.analysis.index_facts import IndexFacts
from tvm_scatter.passes.analysis.integer_ranges import Range, Ranges, Unproven, number

from .rule import Known, below, exactly, shape_of


def is_permutation(facts: IndexFacts, axis: int, length: Any, count: Any, ranges: Ranges) -> bool:
    """Whether each ``count`` elements along an axis are the numbers below ``length``, each once."""
    inside = ranges.inside(facts.range, Range(0, length - 1))
    return inside and axis in facts.distinct and same_size(length, count)


def read(call: relax.Call, known: Known) -> IndexFacts:
    """What is read; a bad index reads 0."""
    facts = known.of(call.args[0])
    chosen = _chosen(call, known)
    if chosen is not None:
        return facts.but(
            distinct=chosen.distinct if 0 in facts.distinct else frozenset(),
            ascending=facts.uniform or (facts.ascending and chosen.ascending),
            uniform=facts.uniform or chosen.uniform,
        )
    if read_of(call) is None:
        # Its mode defines bad indices otherwise.
        raise Unproven
    return IndexFacts(known.ranges.union(facts.range, exactly(0)))


def _chosen(call: relax.Call, known: Known) -> IndexFacts | None:
    """What is known of the index, where all that is read is elements of a vector."""
    data, index = call.args[0], index_tensors(call)[0]
    try:
        found = read_of(call)
        form = ByAxes((0,)) if found is None else found.form
        if form != ByAxes((0,)) or data.ty.ndim != 1:
            return None
        facts, size = known.of(index), number(shape_of(data)[0])
        return facts if known.ranges.inside(facts.range, below(size, known).range) else None
    except (ScatterError, Unproven):
        return None


def scatter(call: relax.Call, known: Known) -> IndexFacts:
    described = ScatterCall.from_call(call)
    if described.reduces.is_sum and described.include_self and not described.fill:
        return _sums(described, known)
    if described.fill or not (described.reduces.is_store or described.reduces.is_extreme):
        raise Unproven
    if described.reduces.is_extreme and not described.include_self:
        raise Unproven
    updates = known.of(described.updates)
    if described.reduces.is_store and _writes_all(described, known):
        same = same_shape(shape_of(described.updates), shape_of(described.data))
        distinct = updates.distinct & {*described.axes} if same else frozenset()
        return updates.but(distinct=distinct, ascending=updates.uniform)
    return IndexFacts(known.ranges.union(known.of(described.data).range, updates.range))


def _sums(scatter: ScatterCall, known: Known) -> IndexFacts:
    """Sums with the data: each element may get all of the updates, or none."""
    # Several indices broadcast against each other, and one of tuples has an axis for the tuple.
    if len(scatter.indices) != 1 or scatter.form not in (INDEX_PUT, SCATTER_ELEMENTS):
        raise Unproven
    ranges, count = known.ranges, exactly(1)
    for size in shape_of(scatter.indices[0]):
        count = ranges.multiply(exactly(number(size)), count)
    updates = ranges.multiply(known.of(scatter.updates).range, count)
    added = ranges.union(updates, exactly(0))
    return IndexFacts(ranges.add(known.of(scatter.data).range, added))


def _writes_all(scatter: ScatterCall, known: Known) -> bool:
    """Whether a scatter certainly writes each element of the lines along an axis, and each once."""
    if scatter.form not in (INDEX_PUT, SCATTER_ELEMENTS) or len(scatter.indices) != 1:
        return False
    tensors = (scatter.data, scatter.indices[0], scatter.updates)
    if scatter.form == INDEX_PUT and any(each.ty.ndim != 1 for each in tensors):
        return False
    try:
        data, index = (shape_of(each) for each in tensors[:2])
        if not data or not same_shape(data, index):
            return False
        [axis] = scatter.axes
        facts = known.of(scatter.indices[0])
        return is_permutation(facts, axis, data[axis], index[axis], known.ranges)
    except Unproven:
        return False
