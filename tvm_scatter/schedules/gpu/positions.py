"""The coordinates at a position of a tensor, whose elements are numbered in the order of memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of, substitute
from tvm_scatter.emit.expressions import all_of

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def split(position: Any, sizes: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The coordinate along each axis at a position, given the axes and their sizes in order."""
    pairs, found = list(sizes), {}
    for axis, size in reversed(pairs):
        found[axis] = position if axis.same_as(pairs[0][0]) else tirx.floormod(position, size)
        position = tirx.floordiv(position, size)
    return found


def position_of(indices: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The position of an element, or of a row if only the indices of rows are given."""
    position: Any = 0
    for index, size in zip(indices, sizes, strict=True):
        position = position * size + index
    return position


def divides(value: Any, axes: Sequence[Any], sizes: Sequence[Any]) -> bool:
    """Whether a position is divided to find what an element is made of.

    TVM cancels out what is divided and multiplied by the same. Shifts do not count.

    Parameters
    ----------
    value : expression
        An element, over coordinates.
    axes : sequence of Var
        The coordinates.
    sizes : sequence of (int or expression)
        The number of values of each.
    """
    position = tirx.Var("position", str(axes[0].ty.dtype))
    coordinates = split(position, zip(axes, sizes, strict=True))
    choices = [call.args[0] for call in all_of(value, tvm.ir.Call) if function_name(call) == BRANCH]
    choices += [choice.condition for choice in all_of(value, tirx.Select)]
    analyzer = Analyzer()
    places = (position_of(load.indices, load.source.shape) for load in loads_of(value))
    for part in (*choices, *places):
        place = analyzer.simplify(substitute(part, coordinates))
        if not all(_is_shift(each) for each in all_of(place, _DIVISIONS)):
            return True
    return False


def _is_shift(division: Any) -> bool:
    by = division.b
    return isinstance(by, tirx.IntImm) and int(by).bit_count() == 1
