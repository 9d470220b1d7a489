"""What each operator of Relax makes of what is known of its operands: a table with a rule for each.

A rule returns facts that hold if the type of the result can hold the range that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.reads import STOCK_OPERATORS as STOCK_READS
from tvm_scatter.lowering.reads import read_of
from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.compaction import TRUE_POSITIONS
from tvm_scatter.ops.expectations import EXPECT_COUNT, EXPECT_INDICES, EXPECT_SIZES
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS, SCATTER_ND
from tvm_scatter.ops.read_forms import ByAxes
from tvm_scatter.ops.read_ops import NAMES as READS
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import is_one, same_size, static_shape
from tvm_scatter.selection.backend import backend_of

from .created import fill_value
from .index_facts import ELEMENTWISE, IndexFacts
from .integer_ranges import Range, Ranges, Unproven, limits, number
from .searches import of_search

#: Constants with more elements are not looked at.
_MOST_VALUES = 1 << 22


class Known(Protocol):
    """What is known of the values of a function so far."""

    @property
    def ranges(self) -> Ranges:
        """Computes with ranges."""

    def of(self, tensor: Any) -> IndexFacts:
        """What is known of a tensor. Raises :class:`Unproven` if it is none of integers."""

    def fields(self, value: Any) -> Sequence[Any]:
        """The fields of a tuple, as :meth:`of` takes them."""


#: A rule takes the call. For several results it returns the facts of each, or ``None``.
Rule = Callable[[relax.Call, Known], IndexFacts | Sequence[IndexFacts | None]]


def of_values(values: np.ndarray[Any, Any]) -> IndexFacts:
    """What holds for numbers."""
    if not np.issubdtype(values.dtype, np.integer) and values.dtype != bool:
        raise Unproven
    if not values.size:
        return IndexFacts(Range(0, -1), frozenset(range(values.ndim)), ascending=True)
    if values.size > _MOST_VALUES:
        return IndexFacts(limits(str(values.dtype)))
    flat = values.reshape(-1)
    axes = [tuple(range(values.ndim)), *((axis,) for axis in range(values.ndim))]
    return IndexFacts(
        Range(int(flat.min()), int(flat.max())),
        next((frozenset(each) for each in axes if _differ(values, each)), frozenset()),
        ascending=bool((flat[1:] >= flat[:-1]).all()),
        uniform=bool((flat == flat[0]).all()),
    )


def _differ(values: np.ndarray[Any, Any], axes: tuple[int, ...]) -> bool:
    lines = np.moveaxis(values, axes, range(-len(axes), 0)) if axes else values
    count = int(np.prod([values.shape[axis] for axis in axes], dtype=np.int64))
    ordered = np.sort(lines.reshape(-1, count), axis=1)
    return bool((ordered[:, 1:] != ordered[:, :-1]).all())


def is_permutation(facts: IndexFacts, length: Any, count: Any, ranges: Ranges) -> bool:
    """Whether a vector of ``count`` elements holds each number below ``length`` once."""
    inside = ranges.inside(facts.range, Range(0, length - 1))
    return inside and 0 in facts.distinct and same_size(length, count)


def carried(facts: IndexFacts, shape: Sequence[Any], wanted: Sequence[Any]) -> IndexFacts:
    """What is known of a tensor of some shape once it is broadcast."""
    offset = len(wanted) - len(shape)
    kept = [same_size(size, wanted[axis + offset]) for axis, size in enumerate(shape)]
    whole = all(kept) and all(map(is_one, wanted[:offset]))
    return facts.but(
        distinct=frozenset(axis + offset for axis in facts.distinct if kept[axis]),
        ascending=facts.uniform or (facts.ascending and whole),
    )


# Creation


def _arange(call: relax.Call, known: Known) -> IndexFacts:
    start, _, step = (number(each) for each in call.args)
    if not isinstance(step, int) or step == 0:
        raise Unproven
    ranges, first = known.ranges, Range(start, start)
    length = ranges.add(_one(number(_shape(call)[0])), _one(-1)).low
    way = ranges.multiply(Range(0, length), _one(step))
    # It is computed as the first number plus the way to it.
    found = ranges.add(first, way)
    if not ranges.fit(way, str(call.ty.dtype)) or not ranges.fit(first, str(call.ty.dtype)):
        raise Unproven
    return IndexFacts(found, frozenset([0]), ascending=step > 0)


def _filled(call: relax.Call, known: Known) -> IndexFacts:
    fill = fill_value(call)
    if fill is None:
        raise Unproven
    return known.of(fill).but(distinct=frozenset(), ascending=True, uniform=True)


# Elementwise


def _elementwise(name: str, operands: slice = slice(None)) -> Rule:
    def rule(call: relax.Call, known: Known) -> IndexFacts:
        shape = _shape(call)
        facts = [carried(known.of(each), _shape(each), shape) for each in call.args[operands]]
        return ELEMENTWISE[name](known.ranges, *facts)

    return rule


def _cast(call: relax.Call, known: Known) -> IndexFacts:
    if str(call.ty.dtype) == "bool":
        raise Unproven
    return known.of(call.args[0])


def _clip(call: relax.Call, known: Known) -> IndexFacts:
    data, least, greatest = call.args
    facts = known.of(data)
    low, high = (_limit(each, str(call.ty.dtype), known) for each in (least, greatest))
    return ELEMENTWISE["maximum"](
        known.ranges, ELEMENTWISE["minimum"](known.ranges, facts, high), low
    )


def _limit(value: Any, dtype: str, known: Known) -> IndexFacts:
    """A limit, which is cast to the type of the data."""
    found = _one(number(value))
    if not known.ranges.fit(found, dtype):
        raise Unproven
    return IndexFacts(found, uniform=True)


# Sorting and searching


def _argsort(call: relax.Call, known: Known) -> IndexFacts:
    return _sorted_positions(call.args[0], int(call.attrs.axis), known)


def _topk(call: relax.Call, known: Known) -> IndexFacts | Sequence[IndexFacts | None]:
    [data], attrs = call.args, call.attrs
    axis, count = int(attrs.axis), number(attrs.k)
    size = number(_shape(data)[axis % data.ty.ndim])
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
    found = _below(number(_shape(data)[axis]), known)
    integral = "int" in str(data.ty.dtype)
    return found.but(distinct=frozenset([axis] if integral else []))


def _sort(call: relax.Call, known: Known) -> IndexFacts:
    if not call.ty.ndim:
        raise Unproven
    facts, axis = known.of(call.args[0]), int(call.attrs.axis) % call.ty.ndim
    up = call.ty.ndim == 1 and not call.attrs.descending
    return facts.but(distinct=facts.distinct & {axis}, ascending=facts.uniform or up)


def _bucketize(call: relax.Call, known: Known) -> IndexFacts:
    values, boundaries = call.args
    try:
        facts: IndexFacts | None = known.of(values)
    except Unproven:
        facts = None
    return of_search(_shape(boundaries)[0], facts)


def _true_positions(call: relax.Call, known: Known) -> IndexFacts:
    elements: Any = 1
    for size in _shape(call.args[0]):
        elements = known.ranges.multiply(_one(number(size)), _one(elements)).low
    return _below(elements, known).but(distinct=frozenset([0]), ascending=True)


def _nonzero(call: relax.Call, known: Known) -> IndexFacts:
    """A row of coordinates for each axis."""
    shape = [number(size) for size in _shape(call.args[0])] or [1]
    found = _below(shape[0], known)
    for size in shape[1:]:
        found = found.but(range=known.ranges.union(found.range, _below(size, known).range))
    if len(shape) == 1:
        return found.but(distinct=frozenset([0, 1]), ascending=True)
    return found


def _cumsum(call: relax.Call, known: Known) -> IndexFacts:
    [data], axis = call.args, call.attrs.axis
    facts, shape = known.of(data), _shape(data)
    if not shape or (axis is None and len(shape) > 1):
        raise Unproven
    if backend_of(target_of(data)).is_gpu:
        # TVM's scan reads, without a barrier, what other threads write: nothing proves its sums.
        raise Unproven
    at = 0 if axis is None else int(axis) % len(shape)
    ranges, count = known.ranges, _one(number(shape[at]))
    # Where there is a sum there is an element. So each lies between zero and what all could be.
    found = ranges.union(ranges.multiply(facts.range, count), _one(0))
    line = all(is_one(size) for place, size in enumerate(shape) if place != at)
    up, strictly = (ranges.at_most(least, facts.range.low) for least in (0, 1))
    return IndexFacts(
        found, frozenset([at] if strictly else []), ascending=line and up, uniform=False
    )


# Views and parts


def _reshape(call: relax.Call, known: Known) -> IndexFacts:
    facts, source, result = known.of(call.args[0]), _shape(call.args[0]), _shape(call)
    before, after = ([at for at, n in enumerate(s) if not is_one(n)] for s in (source, result))
    if facts.distinct >= set(before):
        return facts.but(distinct=frozenset(range(len(result))))
    same = len(before) == len(after) and all(
        same_size(source[b], result[a]) for b, a in zip(before, after, strict=True)
    )
    axes = zip(before, after, strict=True) if same else ()
    return facts.but(distinct=frozenset(a for b, a in axes if b in facts.distinct))


def _permute(call: relax.Call, known: Known) -> IndexFacts:
    facts, rank = known.of(call.args[0]), call.ty.ndim
    axes = [int(axis) % rank for axis in call.attrs.axes or range(rank - 1, -1, -1)]
    shape = _shape(call.args[0])
    moved = [axis for axis in axes if not is_one(shape[axis])]
    return facts.but(
        distinct=frozenset(at for at, axis in enumerate(axes) if axis in facts.distinct),
        ascending=facts.uniform or (facts.ascending and moved == sorted(moved)),
    )


def _broadcast(call: relax.Call, known: Known) -> IndexFacts:
    return carried(known.of(call.args[0]), _shape(call.args[0]), _shape(call))


def _slice(call: relax.Call, known: Known) -> IndexFacts:
    data, axes, begins = call.args[0], *map(_numbers, call.args[1:3])
    facts, shape, result = known.of(data), _shape(data), _shape(call)
    steps = _numbers(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    ranges = known.ranges
    for axis, begin, step in zip(axes, begins, steps, strict=True):
        if not (isinstance(axis, int) and isinstance(step, int)):
            raise Unproven
        axis %= len(shape)
        way = ranges.multiply(_below(number(result[axis]), known).range, _one(step))
        # Elsewhere TVM may read what is no element.
        if not ranges.inside(
            ranges.add(_one(begin), way), _below(number(shape[axis]), known).range
        ):
            raise Unproven
    up = all(step > 0 for step in steps)
    return facts.but(ascending=facts.uniform or (facts.ascending and up))


def _split(call: relax.Call, known: Known) -> Sequence[IndexFacts]:
    return [known.of(call.args[0])] * len(call.ty.fields)


def _concat(call: relax.Call, known: Known) -> IndexFacts:
    parts, ranges = [known.of(each) for each in known.fields(call.args[0])], known.ranges
    if call.attrs.axis is None:
        raise Unproven
    axis = int(call.attrs.axis) % call.ty.ndim
    found, distinct = parts[0].range, parts[0].distinct
    up = all(part.ascending for part in parts)
    up = up and all(is_one(size) for at, size in enumerate(_shape(call)) if at != axis)
    for part in parts[1:]:
        above = ranges.at_most(ranges.add(_one(found.high), _one(1)).low, part.range.low)
        distinct = distinct & part.distinct if above else frozenset()
        up = up and ranges.at_most(found.high, part.range.low)
        found = ranges.union(found, part.range)
    return IndexFacts(found, distinct, ascending=up)


def _stack(call: relax.Call, known: Known) -> IndexFacts:
    found, *others = (known.of(each).range for each in known.fields(call.args[0]))
    for other in others:
        found = known.ranges.union(found, other)
    return IndexFacts(found)


def _repeat(call: relax.Call, known: Known) -> IndexFacts:
    facts = known.of(call.args[0])
    up = call.args[0].ty.ndim == 1 and facts.ascending
    return facts.but(distinct=frozenset(), ascending=facts.uniform or up)


def _tile(call: relax.Call, known: Known) -> IndexFacts:
    facts = known.of(call.args[0])
    return facts.but(distinct=frozenset(), ascending=facts.uniform)


def _flip(call: relax.Call, known: Known) -> IndexFacts:
    facts = known.of(call.args[0])
    return facts.but(ascending=facts.uniform)


def _first_operand(call: relax.Call, known: Known) -> IndexFacts:
    return known.of(call.args[0])


def _checked_index(call: relax.Call, known: Known) -> IndexFacts:
    return known.of(index_tensors(call)[0])


# Reads and writes by index


def _read(call: relax.Call, known: Known) -> IndexFacts:
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
    return IndexFacts(known.ranges.union(facts.range, _one(0)))


def _chosen(call: relax.Call, known: Known) -> IndexFacts | None:
    """What is known of the index, where all that is read is elements of a vector."""
    data, index = call.args[0], index_tensors(call)[0]
    try:
        read = read_of(call)
        form = ByAxes((0,)) if read is None else read.form
        if form != ByAxes((0,)) or data.ty.ndim != 1:
            return None
        facts, size = known.of(index), number(_shape(data)[0])
        return facts if known.ranges.inside(facts.range, _below(size, known).range) else None
    except (ScatterError, Unproven):
        return None


def _scatter(call: relax.Call, known: Known) -> IndexFacts:
    scatter = ScatterCall.from_call(call)
    if scatter.reduces.is_sum and scatter.include_self and not scatter.fill:
        return _sums(scatter, known)
    if scatter.fill or not (scatter.reduces.is_store or scatter.reduces.is_extreme):
        raise Unproven
    if scatter.reduces.is_extreme and not scatter.include_self:
        raise Unproven
    updates = known.of(scatter.updates)
    if scatter.reduces.is_store and writes_all_of_a_vector(scatter, known):
        same = same_size(_shape(scatter.updates)[0], _shape(scatter.data)[0])
        distinct = updates.distinct if same else frozenset()
        return updates.but(distinct=distinct, ascending=updates.uniform)
    return IndexFacts(known.ranges.union(known.of(scatter.data).range, updates.range))


def _sums(scatter: ScatterCall, known: Known) -> IndexFacts:
    """Sums with the data: each element may get all of the updates, or none."""
    # Several indices broadcast against each other, and one of tuples has an axis for the tuple.
    if len(scatter.indices) != 1 or scatter.form not in (INDEX_PUT, SCATTER_ELEMENTS):
        raise Unproven
    ranges, count = known.ranges, _one(1)
    for size in _shape(scatter.indices[0]):
        count = ranges.multiply(_one(number(size)), count)
    updates = ranges.multiply(known.of(scatter.updates).range, count)
    added = ranges.union(updates, _one(0))
    return IndexFacts(ranges.add(known.of(scatter.data).range, added))


def writes_all_of_a_vector(scatter: ScatterCall, known: Known) -> bool:
    """Whether a scatter certainly writes each element of a vector, and each once."""
    vector = scatter.form in (INDEX_PUT, SCATTER_ELEMENTS) and len(scatter.indices) == 1
    tensors = (scatter.data, scatter.indices[0], scatter.updates) if vector else ()
    if not vector or any(each.ty.ndim != 1 for each in tensors):
        return False
    try:
        size, count = (_shape(each)[0] for each in tensors[:2])
        return is_permutation(known.of(scatter.indices[0]), size, count, known.ranges)
    except Unproven:
        return False


# Helpers


def _shape(tensor: Any) -> list[Any]:
    shape = static_shape(tensor)
    if shape is None:
        raise Unproven
    return shape


def _numbers(values: Any) -> list[Any]:
    if not isinstance(values, relax.Tuple):
        raise Unproven
    return [number(each) for each in values.fields]


def _one(value: Any) -> Range:
    return Range(value, value)


def _below(size: Any, known: Known) -> IndexFacts:
    return IndexFacts(Range(0, known.ranges.add(_one(size), _one(-1)).low))


_VIEWS = ("expand_dims", "flatten", "reshape", "squeeze")
_BINARY = (
    *("add", "bitwise_and", "divide", "floor_divide", "floor_mod", "maximum", "minimum", "mod"),
    *("multiply", "subtract"),
)
_FILLING = ("full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
_UNARY = ("abs", "bitwise_not", "negative")

#: The rule for each operator. Of the result of another one, only its type is known.
RULES: dict[str, Rule] = {
    "relax.arange": _arange,
    "relax.argsort": _argsort,
    "relax.astype": _cast,
    "relax.broadcast_to": _broadcast,
    "relax.bucketize": _bucketize,
    "relax.clip": _clip,
    "relax.concat": _concat,
    "relax.cumsum": _cumsum,
    "relax.flip": _flip,
    "relax.nonzero": _nonzero,
    "relax.permute_dims": _permute,
    "relax.repeat": _repeat,
    "relax.sort": _sort,
    "relax.split": _split,
    "relax.stack": _stack,
    "relax.strided_slice": _slice,
    "relax.tile": _tile,
    "relax.topk": _topk,
    "relax.where": _elementwise("either", slice(1, 3)),
    TRUE_POSITIONS: _true_positions,
    EXPECT_COUNT: _first_operand,
    EXPECT_INDICES: _checked_index,
    EXPECT_SIZES: _first_operand,
    **{f"relax.{name}": _reshape for name in _VIEWS},
    **{f"relax.{name}": _elementwise(name) for name in (*_BINARY, *_UNARY)},
    **{f"relax.{name}": _filled for name in _FILLING},
    **dict.fromkeys((*STOCK_READS, *READS), _read),
    **dict.fromkeys((INDEX_PUT, SCATTER_ELEMENTS, SCATTER_ND), _scatter),
}
