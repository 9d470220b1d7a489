"""A small decision tree over problems, grown where a split saves the most time.

Cost-sensitive: what counts is not how often the choice is the best one but how much slower it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tvm_scatter.defaults import EXTENT_FEATURES, feature
from tvm_scatter.problem import ScatterProblem

Array = np.ndarray[Any, Any]

NUMBERS = (*EXTENT_FEATURES, "itemsize", "multiplicity", "collision")
FIELDS = (
    "reduction",
    "data_dtype",
    "unique",
    "deterministic",
    "index_slice",
    "index_batch",
    "in_place",
)
#: A loss beyond this ratio weighs more than its logarithm: a default must never be far off.
_TOLERABLE = np.log(1.3)
_WEIGHT_BEYOND = 15.0
#: What it costs where neither a region's first choice nor its second applies.
_NEITHER = 2.0


class Examples:
    """Problems, and how many times the best choice each implementation takes for them.

    Parameters
    ----------
    problems : sequence of ScatterProblem
        Static problems.
    names : sequence of str
        The implementations.
    losses : numpy.ndarray
        Of shape (problems, names): at least 1, NaN where an implementation does not apply.
    weights : numpy.ndarray
        How much each problem counts.
    """

    def __init__(
        self,
        problems: Sequence[ScatterProblem],
        names: Sequence[str],
        losses: Array,
        weights: Array | None = None,
    ) -> None:
        self.problems = list(problems)
        self.names = list(names)
        self.weights = np.ones(len(self.problems)) if weights is None else weights
        ratio = np.log(losses)
        self.penalty = ratio + _WEIGHT_BEYOND * np.maximum(ratio - _TOLERABLE, 0)
        self.numbers = {
            name: np.array([feature(name, problem) or 0 for problem in self.problems])
            for name in NUMBERS
        }
        self.fields = {
            name: np.array([str(getattr(problem, name)) for problem in self.problems])
            for name in FIELDS
        }

    def values(self, name: str, texts: set[str]) -> tuple[Any, ...]:
        """The values of a field behind their texts, in order."""
        found = {str(getattr(p, name)): getattr(p, name) for p in self.problems}
        return tuple(found[text] for text in sorted(texts))


@dataclass(frozen=True)
class Region:
    """Problems that satisfy some conditions.

    Attributes
    ----------
    members : numpy.ndarray
        Their numbers among the examples.
    conditions : tuple of (feature, comparison, value)
        On sizes.
    only : tuple of (field, texts)
        Fields that have one of some values.
    """

    members: Array
    conditions: tuple[tuple[str, str, int], ...] = ()
    only: tuple[tuple[str, frozenset[str]], ...] = ()


def order(region: Region, examples: Examples) -> list[str]:
    """What to choose in a region: the best, then the best where that does not apply, and so on."""
    left, found = region.members, list[str]()
    while left.size:
        penalty = examples.penalty[left]
        best = int(_costs(penalty, examples.weights[left]).argmin())
        found.append(examples.names[best])
        left = left[~np.isfinite(penalty[:, best])]
    return found


def grow(examples: Examples, regions: int, fewest: float, gain: float) -> list[Region]:
    """Divide problems into regions, best split first.

    Parameters
    ----------
    regions : int
        How many at most.
    fewest : float
        Weight of the problems that a region holds at least.
    gain : float
        What a split must save at least, in weighted logarithms of ratios.
    """
    tie = count()
    queue: list[tuple[float, int, Region, tuple[Region, Region] | None]] = []

    def push(region: Region) -> None:
        members = region.members
        whole = _cost(examples.penalty[members], examples.weights[members])
        best, halves = min(
            _splits(region, examples, fewest),
            key=lambda split: split[0],
            default=(whole, None),
        )
        heapq.heappush(queue, (best - whole, next(tie), region, halves))

    push(Region(np.arange(len(examples.problems))))
    while len(queue) < regions and queue[0][3] is not None and -queue[0][0] >= gain:
        halves = heapq.heappop(queue)[3]
        assert halves is not None
        for half in halves:
            push(half)
    return [region for _, _, region, _ in sorted(queue, key=lambda entry: entry[1])]


def _costs(penalty: Array, weights: Array) -> Array:
    """For each first choice its weighted penalties and, where it does not apply, a second one's."""
    applies = np.isfinite(penalty)
    first = (np.where(applies, penalty, 0.0) * weights[:, None]).sum(axis=0)
    second = (~applies).T @ (np.where(applies, penalty, _NEITHER) * weights[:, None])
    costs: Array = first + second.min(axis=1)
    # A choice that applies nowhere is none.
    costs[~applies.any(axis=0)] = np.inf
    return costs


def _cost(penalty: Array, weights: Array) -> float:
    return float(_costs(penalty, weights).min())


def _splits(
    region: Region, examples: Examples, fewest: float
) -> Iterator[tuple[float, tuple[Region, Region]]]:
    members = region.members
    penalty, weights = examples.penalty[members], examples.weights[members]

    def judged(inside: Array) -> float | None:
        if min(weights[inside].sum(), weights[~inside].sum()) < fewest:
            return None
        halves = inside, ~inside
        return sum(_cost(penalty[half], weights[half]) for half in halves)

    for name in NUMBERS:
        values = examples.numbers[name][members]
        for limit in _limits(values):
            inside = values <= limit
            cost = judged(inside)
            if cost is not None:
                low = _half(region, members[inside], name, "<=", limit)
                yield cost, (low, _half(region, members[~inside], name, ">=", limit + 1))
    for name in FIELDS:
        texts = examples.fields[name][members]
        every = set(texts)
        for text in sorted(every) if len(every) > 1 else ():
            inside = texts == text
            cost = judged(inside)
            if cost is not None:
                one = _named(region, members[inside], name, {text})
                yield cost, (one, _named(region, members[~inside], name, every - {text}))


def _limits(values: Array) -> list[int]:
    """Powers of two that divide values."""
    low, high = int(values.min()), int(values.max())
    powers = (1 << exponent for exponent in range(max(low, 1).bit_length() - 1, 63))
    found = []
    for power in powers:
        if power >= high:
            break
        if power >= low:
            found.append(power)
    return found


def _half(region: Region, members: Array, name: str, sign: str, value: int) -> Region:
    """A region narrowed by a condition; a weaker one on the same feature is dropped."""
    kept = tuple(c for c in region.conditions if (c[0], c[1]) != (name, sign))
    return Region(members, (*kept, (name, sign, value)), region.only)


def _named(region: Region, members: Array, name: str, texts: set[str]) -> Region:
    kept = tuple(each for each in region.only if each[0] != name)
    return Region(members, region.conditions, (*kept, (name, frozenset(texts))))
