"""A small decision tree over problems, grown where a split saves the most time.

Cost-sensitive: what counts is not how often the choice is the best one but how much slower it is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

from tvm_scatter.defaults import EXTENT_FEATURES, feature
from tvm_scatter.problem import ScatterProblem

NUMBERS = (*EXTENT_FEATURES, "itemsize", "multiplicity")
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
_TOLERABLE = math.log(1.3)
_WEIGHT_BEYOND = 4.0
#: What a choice costs that was not measured, or cannot be made where another can.
_UNKNOWN = math.log(8.0)


@dataclass(frozen=True)
class Example:
    """A problem and the time of every implementation with its default knobs, over the best time."""

    problem: ScatterProblem
    losses: Mapping[str, float]


@dataclass
class Region:
    """Problems that satisfy some conditions, and what to choose for them, the first first."""

    examples: list[Example]
    conditions: tuple[tuple[str, str, int], ...] = ()
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    cost: float = 0.0


def penalty(loss: float) -> float:
    """What a choice that takes ``loss`` times the best costs."""
    ratio = math.log(max(loss, 1.0))
    return ratio + _WEIGHT_BEYOND * max(ratio - _TOLERABLE, 0.0)


def settle(region: Region) -> Region:
    """Fill in the best order of implementations for a region's problems and its cost."""
    left = list(region.examples)
    region.order, region.cost = [], 0.0
    while left:
        names = {name for example in left for name in example.losses}

        def mean_cost(name: str, examples: Sequence[Example] = left) -> tuple[float, str]:
            costs = [
                penalty(example.losses[name]) if name in example.losses else _UNKNOWN
                for example in examples
            ]
            return sum(costs) / len(costs), name

        best = min(names, key=mean_cost)
        region.order.append(best)
        region.cost += sum(penalty(e.losses[best]) for e in left if best in e.losses)
        left = [example for example in left if best not in example.losses]
    return region


def grow(examples: Sequence[Example], regions: int, fewest: int, gain: float) -> list[Region]:
    """Divide problems into regions, best split first.

    Parameters
    ----------
    regions : int
        How many at most.
    fewest : int
        Problems that a region holds at least.
    gain : float
        What a split must save at least.
    """
    root = settle(Region(list(examples)))
    tie = count()
    queue: list[tuple[float, int, Region, tuple[Region, Region] | None]] = []

    def push(region: Region) -> None:
        best = min(_splits(region, fewest), key=lambda s: s[0].cost + s[1].cost, default=None)
        saved = 0.0 if best is None else region.cost - best[0].cost - best[1].cost
        heapq.heappush(queue, (-saved, next(tie), region, best))

    push(root)
    while len(queue) < regions and queue[0][3] is not None and -queue[0][0] >= gain:
        _, _, _, halves = heapq.heappop(queue)
        assert halves is not None
        for half in halves:
            push(half)
    return [region for _, _, region, _ in sorted(queue, key=lambda entry: entry[1])]


def _splits(region: Region, fewest: int) -> Iterator[tuple[Region, Region]]:
    for name in NUMBERS:
        values = sorted({_number(name, example) for example in region.examples})
        for low, high in pairwise(values):
            limit = _between(low, high)
            halves = _divide(region, lambda e, n=name, v=limit: _number(n, e) <= v)  # type: ignore[misc]
            if min(map(len, halves)) >= fewest:
                yield (
                    _half(region, halves[0], name, "<=", limit),
                    _half(region, halves[1], name, ">=", limit + 1),
                )
    for name in FIELDS:
        values = sorted({getattr(example.problem, name) for example in region.examples}, key=str)
        for value in values if len(values) > 1 else ():
            halves = _divide(region, lambda e, n=name, v=value: getattr(e.problem, n) == v)  # type: ignore[misc]
            if min(map(len, halves)) >= fewest:
                others = tuple(other for other in values if other != value)
                yield (
                    _named(region, halves[0], name, (value,)),
                    _named(region, halves[1], name, others),
                )


def _number(name: str, example: Example) -> int:
    return feature(name, example.problem) or 0


def _between(low: int, high: int) -> int:
    """A round number in [low, high): the geometric mean's power of two, if there is one."""
    middle = 1 << round(math.log2(math.sqrt(max(low, 1) * high)))
    return middle if low <= middle < high else low


def _divide(region: Region, test: Callable[[Example], bool]) -> tuple[list[Example], list[Example]]:
    inside = [example for example in region.examples if test(example)]
    return inside, [example for example in region.examples if not test(example)]


def _half(region: Region, examples: list[Example], name: str, sign: str, value: int) -> Region:
    """A region narrowed by a condition; a weaker one on the same feature is dropped."""
    kept = tuple(c for c in region.conditions if (c[0], c[1]) != (name, sign))
    return settle(Region(examples, (*kept, (name, sign, value)), dict(region.only)))


def _named(region: Region, examples: list[Example], name: str, values: tuple[Any, ...]) -> Region:
    return settle(Region(examples, region.conditions, {**region.only, name: values}))
