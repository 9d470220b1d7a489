"""Which keys a score leaves out, whatever the product of query and key is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, substitute
from tvm_scatter.emit.expressions import all_of, varies
from tvm_scatter.emit.kept import kept_value

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


class _Side(NamedTuple):
    """The keys of which a comparison has one truth value.

    Attributes
    ----------
    comparison : expression
        It compares the place of a key, or its distance from the query, with what is the same for
        all keys and queries.
    is_late : bool
        Whether they are those from some place on, and not those before it.
    place : expression
        That place.
    truth : bool
        What the comparison says of them.
    """

    comparison: Any
    is_late: bool
    place: Any
    truth: bool


@dataclass(frozen=True)
class SeenKeys:
    """The keys that a query may see.

    Attributes
    ----------
    first, end : expression or None
        The place of the first one, and where they end, over the query, if anything is known.
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
    limits: dict[bool, list[_Side]] = {False: [], True: []}
    for side in _sides(score, query, key):
        depends = any(varies(side.place, axis) for axis in axes)
        if not depends and is_masked(_where(score, [side], opposite=False)):
            limits[side.is_late].append(side)
    places = ([side.place for side in limits[late]] for late in (False, True))
    first, end = (
        reduce(by, found) if found else None
        for by, found in zip((tirx.max, tirx.min), places, strict=True)
    )
    return SeenKeys(first, end, _where(score, [*limits[False], *limits[True]], opposite=True))


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
    """Both sides of each comparison that tells keys from each other by their places."""
    for kind in _COMPARISONS:
        for comparison in all_of(score, kind):
            found = _compared(comparison, query, key)
            if found is None:
                continue
            sign, of_query, rest = found
            # Of differences of whole numbers, "less" is "at most one less".
            is_below = isinstance(comparison, tirx.LT | tirx.LE)
            if isinstance(comparison, tirx.LT | tirx.GE):
                rest = rest + 1
            # With d for the place of the key: it is below where sign * d + rest <= 0.
            late = Analyzer().simplify(of_query + (1 - rest if sign > 0 else rest))
            for is_late in (False, True):
                below = is_late == (sign < 0)
                yield _Side(comparison, is_late, late, below == is_below)


def _compared(comparison: Any, query: Any, key: Any) -> tuple[int, Any, Any] | None:
    """The sign of a key's place in a difference that is compared with 0, and what else is in it.

    The place counts from the query or from 0, which is the second result; the third one is the
    rest.
    """
    if not str(comparison.a.ty.dtype).startswith("int"):
        return None
    # Places are far from where whole numbers wrap around.
    difference, analyzer = _unkept(comparison.a) - _unkept(comparison.b), Analyzer()
    steps = [
        analyzer.simplify(substitute(difference, {axis: axis + 1}) - difference)
        for axis in (key, query)
    ]
    if not all(isinstance(step, tirx.IntImm) for step in steps):
        return None
    sign, opposite = map(int, steps)
    if abs(sign) != 1 or opposite not in (0, -sign):
        return None
    begin = query if opposite else tirx.IntImm("int64", 0)
    place = key - begin if sign > 0 else begin - key
    rest = analyzer.simplify(difference - place)
    return None if varies(rest, query) or varies(rest, key) else (sign, begin, rest)


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
