"""What is known of a tensor of integers, and how elementwise arithmetic changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .integer_ranges import Range, Ranges, Unproven


@dataclass(frozen=True)
class IndexFacts:
    """What holds for the elements of a tensor of integers, whatever the inputs of the model are.

    A fact that holds of no elements holds: whatever is known of an empty tensor is true.

    Attributes
    ----------
    range : Range
        Every element lies in it.
    distinct : frozenset of int
        Axes: two elements whose coordinates differ along some of them, and along no other, differ.
    ascending : bool
        Whether no element is less than the one before it, in the order of memory.
    uniform : bool
        Whether all elements are equal.
    because : str
        Where the facts come from, such as the name of an operator.
    """

    range: Range
    distinct: frozenset[int] = frozenset()
    ascending: bool = False
    uniform: bool = False
    because: str = ""

    def but(self, **changes: object) -> IndexFacts:
        """The same facts with some changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


Elementwise = Callable[..., IndexFacts]


def _add(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    return IndexFacts(
        ranges.add(left.range, right.range),
        _beside_uniform(left, right),
        _climbs(left, right),
        left.uniform and right.uniform,
    )


def _subtract(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    return IndexFacts(
        ranges.subtract(left.range, right.range),
        _beside_uniform(left, right),
        left.ascending and right.uniform,
        left.uniform and right.uniform,
    )


def _multiply(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    if left.uniform and not right.uniform:
        left, right = right, left
    up, down = ranges.at_most(1, right.range.low), ranges.at_most(right.range.high, -1)
    return IndexFacts(
        ranges.multiply(left.range, right.range),
        left.distinct if right.uniform and (up or down) else frozenset(),
        left.ascending and right.uniform and up,
        left.uniform and right.uniform,
    )


def _floor_divide(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    return IndexFacts(
        ranges.floor_divide(left.range, right.range),
        ascending=left.ascending and right.uniform,
        uniform=left.uniform and right.uniform,
    )


def _divide(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    """A quotient that is rounded towards zero."""
    _expect_no_sign(ranges, left)
    return _floor_divide(ranges, left, right)


def _floor_mod(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    found = ranges.floor_mod(left.range, right.range)
    if found is left.range:
        # No element is changed.
        return left
    return IndexFacts(found, uniform=left.uniform and right.uniform)


def _mod(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    """A remainder with the sign of the left operand."""
    _expect_no_sign(ranges, left)
    return _floor_mod(ranges, left, right)


def _minimum(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    return IndexFacts(
        ranges.minimum(left.range, right.range),
        ascending=_climbs(left, right),
        uniform=left.uniform and right.uniform,
    )


def _maximum(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    return IndexFacts(
        ranges.maximum(left.range, right.range),
        ascending=_climbs(left, right),
        uniform=left.uniform and right.uniform,
    )


def _bitwise_and(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    """The bits of a number that is not negative are not more than that number."""
    for one in (right, left):
        if ranges.at_most(0, one.range.low):
            return IndexFacts(Range(0, one.range.high), uniform=left.uniform and right.uniform)
    raise Unproven


def _negative(ranges: Ranges, one: IndexFacts) -> IndexFacts:
    return one.but(range=ranges.negate(one.range), ascending=one.uniform)


def _bitwise_not(ranges: Ranges, one: IndexFacts) -> IndexFacts:
    """``-1 - x``."""
    found = ranges.add(ranges.negate(one.range), Range(-1, -1))
    return one.but(range=found, ascending=one.uniform)


def _absolute(ranges: Ranges, one: IndexFacts) -> IndexFacts:
    if ranges.at_most(0, one.range.low):
        return one
    found = ranges.maximum(one.range, ranges.negate(one.range))
    return IndexFacts(Range(0, found.high), uniform=one.uniform)


def _either(ranges: Ranges, left: IndexFacts, right: IndexFacts) -> IndexFacts:
    """Each element is one of either."""
    return IndexFacts(ranges.union(left.range, right.range))


def _beside_uniform(left: IndexFacts, right: IndexFacts) -> frozenset[int]:
    """Along which axes elements differ that get the same number added."""
    if right.uniform:
        return left.distinct
    return right.distinct if left.uniform else frozenset()


def _climbs(left: IndexFacts, right: IndexFacts) -> bool:
    return (left.ascending or left.uniform) and (right.ascending or right.uniform)


def _expect_no_sign(ranges: Ranges, one: IndexFacts) -> None:
    if not ranges.at_most(0, one.range.low):
        raise Unproven


#: What is known of each element's result, given what is known of operands of one shape. Exact
#: arithmetic: the result's type must hold the range, or nothing is known.
ELEMENTWISE: dict[str, Elementwise] = {
    "abs": _absolute,
    "add": _add,
    "bitwise_and": _bitwise_and,
    "bitwise_not": _bitwise_not,
    "divide": _divide,
    "either": _either,
    "floor_divide": _floor_divide,
    "floor_mod": _floor_mod,
    "maximum": _maximum,
    "minimum": _minimum,
    "mod": _mod,
    "multiply": _multiply,
    "negative": _negative,
    "subtract": _subtract,
}
