"""What facts about index tensors say of the operators that read and write by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.ops.names import SCATTER_ELEMENTS, SCATTER_ND
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import is_one, same_size, static_shape

from .index_analysis import IndexAnalysis
from .index_facts import IndexFacts
from .integer_ranges import Range, Unproven, number


@dataclass(frozen=True)
class Claims:
    """What is proved of the indices of one call.

    Attributes
    ----------
    in_range : bool
        Whether none is out of bounds.
    wraps : bool
        Whether one may be negative and count from the end.
    unique : bool
        Whether no two of them address one place.
    words : str
        The same for people; empty if nothing is proved.
    """

    in_range: bool
    wraps: bool
    unique: bool
    words: str


def claims_of_scatter(call: ScatterCall, known: IndexAnalysis) -> Claims | None:
    """What is proved of the indices of a scatter; ``None`` if nothing is known of one of them."""
    shape = static_shape(call.data)
    if shape is None:
        return None
    if call.form == SCATTER_ND:
        index = static_shape(call.indices[0])
        axes: Sequence[int] = range(int(index[-1])) if index else ()
    else:
        axes = call.axes
    # A 0-d tensor counts as one with a single axis of size 1.
    extents = [shape[axis] if shape else 1 for axis in axes]
    return claims(call.indices, extents, call.wrap_negative, known, _differ(call, known))


def claims(
    indices: Sequence[Any],
    extents: Sequence[Any],
    wrap_negative: bool,
    known: IndexAnalysis,
    differ: bool = False,
) -> Claims | None:
    """What is proved of index tensors; ``None`` if nothing is known of one of them.

    Parameters
    ----------
    indices : sequence of relax.Expr
        A tensor for each component, or one for all.
    extents : sequence of int or expression
        The extent that each component addresses.
    differ : bool
        Whether the indices of no two places are equal.
    """
    facts = [known(index) for index in indices]
    if not extents or None in facts:
        return None
    found = [each for each in facts if each is not None]
    wraps = wrap_negative and not all(known.ranges.at_most(0, each.range.low) for each in found)
    by_component = found * len(extents) if len(found) == 1 else found
    inside = all(
        _is_inside(each, extent, wrap_negative, known)
        for each, extent in zip(by_component, extents, strict=True)
    )
    # An index that counts from the end may address the same place as another one.
    unique = differ and not wraps
    return Claims(inside, wraps, unique, _in_words(found, inside, unique))


def _is_inside(facts: IndexFacts, extent: Any, wrap_negative: bool, known: IndexAnalysis) -> bool:
    try:
        size = Range(number(extent), number(extent))
        last = known.ranges.add(size, Range(-1, -1)).high
        first = known.ranges.negate(size).low if wrap_negative else 0
        return known.ranges.inside(facts.range, Range(first, last))
    except Unproven:
        return False


def _differ(call: ScatterCall, known: IndexAnalysis) -> bool:
    """Whether the indices of no two updates with another place beside them are equal."""
    if call.form == SCATTER_ELEMENTS:
        facts = known(call.indices[0])
        return facts is not None and call.axes[0] in facts.distinct
    if call.form == SCATTER_ND:
        shape = static_shape(call.indices[0]) or []
        facts = known(call.indices[0])
        one = bool(shape) and is_one(shape[-1]) and facts is not None
        return one and facts is not None and facts.distinct >= _long(shape[:-1])
    return _differ_together(call.indices, known)


def _differ_together(indices: Sequence[Any], known: IndexAnalysis) -> bool:
    """Whether no two positions of tensors that are broadcast have the same tuple of indices.

    Two positions with equal tuples cannot differ along an axis along which one tensor has distinct
    elements, if they agree along all its other axes. From each such tensor follows that they agree
    along all its axes.
    """
    shapes = [static_shape(index) for index in indices]
    if any(shape is None for shape in shapes):
        return False
    rank = max(len(shape or []) for shape in shapes)
    varies: list[tuple[set[int], set[int]]] = []
    for index, shape in zip(indices, shapes, strict=True):
        facts, behind = known(index), rank - len(shape or [])
        if facts is None:
            return False
        varies.append(
            (
                {axis + behind for axis in _long(shape or [])},
                {axis + behind for axis in facts.distinct},
            )
        )
    wanted = set().union(*(axes for axes, _ in varies))
    agreed: set[int] = set()
    for _ in indices:
        for axes, distinct in varies:
            if axes - agreed <= distinct:
                agreed |= axes
    return wanted <= agreed


def _long(shape: Iterable[Any]) -> set[int]:
    """The axes that may have more than one position."""
    return {axis for axis, size in enumerate(shape) if not is_one(size)}


def _in_words(found: Sequence[IndexFacts], inside: bool, unique: bool) -> str:
    ranges = dict.fromkeys(str(each.range) for each in found)
    words = [f"in {' and '.join(ranges)}"] if inside else []
    words += ["unique"] if unique else []
    words += ["ascending"] if len(found) == 1 and found[0].ascending else []
    reasons = dict.fromkeys(each.because for each in found if each.because)
    return f"{', '.join(words)}, by {' and '.join(reasons)}" if words and reasons else ""


def covers(call: ScatterCall, claimed: Claims) -> bool:
    """Whether each place is certainly written, and once: there are as many as there are updates."""
    shape, index = static_shape(call.data), static_shape(call.indices[0])
    if not (claimed.unique and claimed.in_range) or not shape or not index:
        return False
    if len(call.indices) > 1 or call.form == SCATTER_ND:
        return False
    if call.form == SCATTER_ELEMENTS:
        return all(same_size(a, b) for a, b in zip(index, shape, strict=True))
    return len(index) == 1 and same_size(index[0], shape[call.axes[0]])
