"""What holds for numbers that are known, and for tensors that are created."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.passes.analysis.created import fill_value
from tvm_scatter.passes.analysis.index_facts import IndexFacts
from tvm_scatter.passes.analysis.integer_ranges import Range, Unproven, limits, number

from .rule import Known, exactly, shape_of

#: Constants with more elements are not looked at.
_MOST_VALUES = 1 << 22


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


def arange(call: relax.Call, known: Known) -> IndexFacts:
    start, _, step = (number(each) for each in call.args)
    if not isinstance(step, int) or step == 0:
        raise Unproven
    ranges, first = known.ranges, Range(start, start)
    length = ranges.add(exactly(number(shape_of(call)[0])), exactly(-1)).low
    way = ranges.multiply(Range(0, length), exactly(step))
    # It is computed as the first number plus the way to it.
    found = ranges.add(first, way)
    if not ranges.fit(way, str(call.ty.dtype)) or not ranges.fit(first, str(call.ty.dtype)):
        raise Unproven
    return IndexFacts(found, frozenset([0]), ascending=step > 0)


def filled(call: relax.Call, known: Known) -> IndexFacts:
    fill = fill_value(call)
    if fill is None:
        raise Unproven
    return known.of(fill).but(distinct=frozenset(), ascending=True, uniform=True)
