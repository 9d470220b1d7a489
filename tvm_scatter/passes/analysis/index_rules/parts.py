"""Rules of operators that move elements: views, slices, joined and repeated tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.shapes import is_one, same_size
from tvm_scatter.passes.analysis.index_facts import IndexFacts
from tvm_scatter.passes.analysis.integer_ranges import Unproven, number

from .elementwise import carried
from .rule import Known, below, exactly, numbers_of, shape_of


def reshape(call: relax.Call, known: Known) -> IndexFacts:
    facts, source, result = known.of(call.args[0]), shape_of(call.args[0]), shape_of(call)
    before, after = ([at for at, n in enumerate(s) if not is_one(n)] for s in (source, result))
    if facts.distinct >= set(before):
        return facts.but(distinct=frozenset(range(len(result))))
    same = len(before) == len(after) and all(
        same_size(source[b], result[a]) for b, a in zip(before, after, strict=True)
    )
    axes = zip(before, after, strict=True) if same else ()
    return facts.but(distinct=frozenset(a for b, a in axes if b in facts.distinct))


def permute(call: relax.Call, known: Known) -> IndexFacts:
    facts, rank = known.of(call.args[0]), call.ty.ndim
    axes = [int(axis) % rank for axis in call.attrs.axes or range(rank - 1, -1, -1)]
    shape = shape_of(call.args[0])
    moved = [axis for axis in axes if not is_one(shape[axis])]
    return facts.but(
        distinct=frozenset(at for at, axis in enumerate(axes) if axis in facts.distinct),
        ascending=facts.uniform or (facts.ascending and moved == sorted(moved)),
    )


def broadcast(call: relax.Call, known: Known) -> IndexFacts:
    return carried(known.of(call.args[0]), shape_of(call.args[0]), shape_of(call))


def strided_slice(call: relax.Call, known: Known) -> IndexFacts:
    data, axes, begins = call.args[0], *map(numbers_of, call.args[1:3])
    facts, shape, result = known.of(data), shape_of(data), shape_of(call)
    steps = numbers_of(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    ranges = known.ranges
    for axis, begin, step in zip(axes, begins, steps, strict=True):
        if not (isinstance(axis, int) and isinstance(step, int)):
            raise Unproven
        axis %= len(shape)
        way = ranges.multiply(below(number(result[axis]), known).range, exactly(step))
        # Elsewhere TVM may read what is no element.
        if not ranges.inside(
            ranges.add(exactly(begin), way), below(number(shape[axis]), known).range
        ):
            raise Unproven
    up = all(step > 0 for step in steps)
    return facts.but(ascending=facts.uniform or (facts.ascending and up))


def split(call: relax.Call, known: Known) -> IndexFacts | Sequence[IndexFacts]:
    facts = known.of(call.args[0])
    # A single part is no tuple.
    return [facts] * len(call.ty.fields) if isinstance(call.ty, relax.TupleType) else facts


def concat(call: relax.Call, known: Known) -> IndexFacts:
    parts, ranges = [known.of(each) for each in known.fields(call.args[0])], known.ranges
    if call.attrs.axis is None:
        raise Unproven
    axis = int(call.attrs.axis) % call.ty.ndim
    found, distinct = parts[0].range, parts[0].distinct
    up = all(part.ascending for part in parts)
    up = up and all(is_one(size) for at, size in enumerate(shape_of(call)) if at != axis)
    for part in parts[1:]:
        above = ranges.at_most(ranges.add(exactly(found.high), exactly(1)).low, part.range.low)
        distinct = distinct & part.distinct if above else frozenset()
        up = up and ranges.at_most(found.high, part.range.low)
        found = ranges.union(found, part.range)
    return IndexFacts(found, distinct, ascending=up)


def stack(call: relax.Call, known: Known) -> IndexFacts:
    found, *others = (known.of(each).range for each in known.fields(call.args[0]))
    for other in others:
        found = known.ranges.union(found, other)
    return IndexFacts(found)


def repeat(call: relax.Call, known: Known) -> IndexFacts:
    facts = known.of(call.args[0])
    up = call.args[0].ty.ndim == 1 and facts.ascending
    return facts.but(distinct=frozenset(), ascending=facts.uniform or up)


def tile(call: relax.Call, known: Known) -> IndexFacts:
    facts = known.of(call.args[0])
    return facts.but(distinct=frozenset(), ascending=facts.uniform)


def flip(call: relax.Call, known: Known) -> IndexFacts:
    facts = known.of(call.args[0])
    return facts.but(ascending=facts.uniform)


def first_operand(call: relax.Call, known: Known) -> IndexFacts:
    return known.of(call.args[0])


def checked_index(call: relax.Call, known: Known) -> IndexFacts:
    return known.of(index_tensors(call)[0])
