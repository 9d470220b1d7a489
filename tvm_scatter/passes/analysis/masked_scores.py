"""Which keys a score leaves out, whatever the product of query and key is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of, substitute
from tvm_scatter.emit.expressions import all_of, is_by_index, varies
from tvm_scatter.emit.kept import kept_value

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


class _Side(NamedTuple):
    """The keys of which a comparison has one truth value.

    Attributes
    ----------
    comparison : expression
        It compares the distance of a key from its query with a number.
    is_late : bool
        Whether they are those from some distance on, and not those before it.
    distance : expression
        That distance.
    truth : bool
        What the comparison says of them.
    """

    comparison: Any
    is_late: bool
    distance: Any
    truth: bool


@dataclass(frozen=True)
class SeenKeys:
    """The keys that a query may see.

    Attributes
    ----------
    first, end : expression or None
        The distance from the query of the first one, and where they end, if anything is known.
    score : expression
        The score of such a key.
    """

    first: Any
    end: Any
    score: Any


def seen_keys(score: Any, query: Any, key: Any, axes: Sequence[Any] = ()) -> SeenKeys:
    """The keys that a score does not leave out.

    Parameters
    ----------
    score : expression
        Over the coordinates of query and key, and others.
    axes : sequence of Var
        The others, on which no limit may depend.
    """
    limits: dict[bool, _Side] = {}
    for side in _sides(score, query, key):
        if any(varies(side.distance, axis) for axis in axes):
            continue
        if side.is_late not in limits and is_masked(_where(score, [side], opposite=False)):
            limits[side.is_late] = side
    seen = _where(score, list(limits.values()), opposite=True)
    first, end = (limits[late].distance if late in limits else None for late in (False, True))
    return SeenKeys(first, end, seen)


def is_masked(score: Any) -> bool:
    """Whether a score is minus infinity, unless something is not finite."""
    if isinstance(score, tirx.FloatImm):
        return float(score.value) == -math.inf
    if isinstance(score, tirx.Cast):
        return is_masked(score.value)
    if isinstance(score, tirx.Add):
        return is_masked(score.a) or is_masked(score.b)
    sides = _sides_of_choice(score)
    return bool(sides) and all(map(is_masked, sides))


def only_masks(score: Any, product: Any) -> bool:
    """Whether a score is the product or minus infinity."""
    if score.same_as(product) or (isinstance(score, tirx.FloatImm) and is_masked(score)):
        return True
    if isinstance(score, tirx.Add):
        pairs = ((score.a, score.b), (score.b, score.a))
        return any(only_masks(one, product) and _is_mask(other) for one, other in pairs)
    sides = _sides_of_choice(score)
    return bool(sides) and all(only_masks(side, product) for side in sides)


def _is_mask(added: Any) -> bool:
    """Whether what is added is zero or minus infinity."""
    if isinstance(added, tirx.FloatImm):
        return float(added.value) in (0.0, -math.inf)
    if isinstance(added, tirx.Cast):
        return str(added.value.ty.dtype).startswith(("float", "bfloat")) and _is_mask(added.value)
    sides = _sides_of_choice(added)
    return bool(sides) and all(map(_is_mask, sides))


def _sides_of_choice(value: Any) -> list[Any]:
    if isinstance(value, tirx.Select):
        return [value.true_value, value.false_value]
    if isinstance(value, tvm.ir.Call) and function_name(value) == BRANCH:
        return list(value.args[1:])
    return []


def _sides(score: Any, query: Any, key: Any) -> Iterator[_Side]:
    """Both sides of each comparison of a key with its query."""
    for kind in _COMPARISONS:
        for comparison in all_of(score, kind):
            found = _from_query(comparison, query, key)
            if found is None:
                continue
            sign, rest = found
            # Of differences of whole numbers, "less" is "at most one less".
            is_below = isinstance(comparison, tirx.LT | tirx.LE)
            if isinstance(comparison, tirx.LT | tirx.GE):
                rest = rest + 1
            # With d for the distance: it is below where sign * d + rest <= 0.
            late = Analyzer().simplify(1 - rest if sign > 0 else rest)
            for is_late in (False, True):
                below = is_late == (sign < 0)
                yield _Side(comparison, is_late, late, below == is_below)


def _from_query(comparison: Any, query: Any, key: Any) -> tuple[int, Any] | None:
    """The sign of a key's distance in a difference that is compared with 0, and the rest."""
    if not str(comparison.a.ty.dtype).startswith("int"):
        return None
    # Places are far from where whole numbers wrap around.
    difference, analyzer = _unkept(comparison.a) - _unkept(comparison.b), Analyzer()
    if any(is_by_index(load) for load in loads_of(difference)):
        return None
    steps = [
        analyzer.simplify(substitute(difference, {axis: axis + 1}) - difference)
        for axis in (key, query)
    ]
    if not all(isinstance(step, tirx.IntImm) for step in steps):
        return None
    sign, opposite = map(int, steps)
    if abs(sign) != 1 or opposite != -sign:
        return None
    distance = key - query if sign > 0 else query - key
    rest = analyzer.simplify(difference - distance)
    if varies(rest, query) or varies(rest, key) or any(True for _ in loads_of(rest)):
        return None
    return sign, rest


def _unkept(number: Any) -> Any:
    """A whole number, of whose parts none is kept as it is."""

    def kept(each: Any) -> Any:
        value = kept_value(each)
        return each if value is None else value

    return tvm_ffi.structural_map(number, (tirx.BitwiseXor, kept))


def _where(score: Any, sides: list[_Side], opposite: bool) -> Any:
    """A score where comparisons are what they are at some sides, or at the opposite ones."""

    def known(comparison: Any) -> Any:
        for side in sides:
            if tvm_ffi.structural_equal(comparison, side.comparison):
                return tirx.const(side.truth != opposite, "bool")
        return comparison

    for kind in _COMPARISONS:
        score = tvm_ffi.structural_map(score, (kind, known))
    return Analyzer().simplify(score)
