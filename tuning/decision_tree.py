"""A small decision tree over problems, grown where a split saves the most time, then pruned.

Cost-sensitive: what counts is not how often the choice is the best one but how much slower it is.
What a region costs is made of sums over its problems, so that all splits by one feature are judged
by running sums over its limits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence, Set
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
    "needs_order",
    "only_stores",
)
#: A loss beyond this ratio weighs more than its logarithm: a default must never be far off.
_TOLERABLE = np.log(1.15)
_WEIGHT_BEYOND = 30.0
#: Sums of weights are not exact.
_ROUNDING = 1e-9
#: Limits that sizes are compared with.
_LIMITS = np.array([0, *(1 << exponent for exponent in range(63))])
#: What it costs where neither a region's first choice nor its second applies: while regions are
#: divided, little, because a third one may well be good, ...
_NEITHER = 2.0
#: ... and when their choices are made more than nearly any loss, or one that applies to few would
#: seem to be the best one for all.
_NEITHER_IN_THE_END = 20.0


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
    numbers : sequence of str
        Features that splits may use.
    """

    def __init__(
        self,
        problems: Sequence[ScatterProblem],
        names: Sequence[str],
        losses: Array,
        weights: Array | None = None,
        numbers: Sequence[str] = NUMBERS,
    ) -> None:
        self.problems = list(problems)
        self.names = list(names)
        self.weights = np.ones(len(self.problems)) if weights is None else weights
        self.losses = losses
        ratio = np.log(losses)
        self.penalty = ratio + _WEIGHT_BEYOND * np.maximum(ratio - _TOLERABLE, 0)
        #: For each feature the place of the least limit that is not below it.
        self.numbers = {
            name: np.searchsorted(_LIMITS, [feature(name, problem) or 0 for problem in problems])
            for name in numbers
        }
        self.fields = {
            name: np.array([str(getattr(problem, name)) for problem in self.problems])
            for name in FIELDS
        }
        self.texts = {name: frozenset(texts.tolist()) for name, texts in self.fields.items()}
        self.sums = _addends(self.penalty, self.weights, _NEITHER)

    def values(self, name: str, texts: Set[str]) -> tuple[Any, ...]:
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


@dataclass(eq=False)
class _Node:
    region: Region
    cost: float
    halves: tuple[_Node, _Node] | None = None


def order(region: Region, examples: Examples) -> list[str]:
    """What to choose in a region: the best, then the best where that does not apply, and so on."""
    left, found = region.members, list[str]()
    while left.size:
        sums = _addends(examples.penalty[left], examples.weights[left], _NEITHER_IN_THE_END)
        best = int(_costs(sums.sum(axis=0)).argmin())
        found.append(examples.names[best])
        left = left[~np.isfinite(examples.penalty[left, best])]
    return found


def grow(
    examples: Examples, regions: int, fewest: float, gain: float, price: float = 0.0
) -> list[Region]:
    """Divide problems into regions, best split first.

    Parameters
    ----------
    regions : int
        How many at most.
    fewest : float
        Weight of the problems that a region holds at least.
    gain : float
        What a split must save at least, in weighted logarithms of ratios.
    price : float
        What each region more must save in the end: splits are undone where those below them do not.
    """
    tie = count()
    queue: list[tuple[float, int, _Node, tuple[Region, Region] | None]] = []

    def push(region: Region) -> _Node:
        node = _Node(region, _cost(region, examples))
        best, halves = min(
            _splits(region, examples, fewest),
            key=lambda split: split[0],
            default=(node.cost, None),
        )
        heapq.heappush(queue, (best - node.cost, next(tie), node, halves))
        return node

    root = push(Region(np.arange(len(examples.problems))))
    while len(queue) < regions and queue[0][3] is not None and -queue[0][0] >= gain:
        _, _, node, halves = heapq.heappop(queue)
        assert halves is not None
        node.halves = push(halves[0]), push(halves[1])
    return _pruned(root, price)[1]


def _pruned(node: _Node, price: float) -> tuple[float, list[Region]]:
    """What a node costs with its regions, and these, where they are worth their price."""
    if node.halves is None:
        return node.cost, [node.region]
    costs, regions = zip(*(_pruned(half, price) for half in node.halves), strict=True)
    every = [region for half in regions for region in half]
    if sum(costs) + price * (len(every) - 1) >= node.cost:
        return node.cost, [node.region]
    return sum(costs), every


def _addends(penalty: Array, weights: Array, neither: float) -> Array:
    """What each problem adds to the sums that the cost of a region is made of.

    These are its weight; for each implementation whether it applies, and its penalty; and for each
    two the penalty of the second where the first does not apply.
    """
    applies = np.isfinite(penalty)
    weighed = np.where(applies, penalty, neither) * weights[:, None]
    second = (~applies)[:, :, None] * weighed[:, None, :]
    return np.concatenate(
        [
            weights[:, None],
            applies,
            np.where(applies, weighed, 0.0),
            second.reshape(len(second), -1),
        ],
        axis=1,
    )


def _costs(sums: Array) -> Array:
    """For each first choice its penalties and, where it does not apply, a second one's."""
    names = round((sums.shape[-1]) ** 0.5) - 1
    applies, first, second = np.split(sums[..., 1:], [names, 2 * names], axis=-1)
    best = second.reshape(*second.shape[:-1], names, names).min(axis=-1)
    # A choice that applies nowhere is none.
    costs: Array = np.where(applies > 0.5, first + best, np.inf)
    return costs


def _cost(region: Region, examples: Examples) -> float:
    return float(_costs(examples.sums[region.members].sum(axis=0)).min())


def _splits(
    region: Region, examples: Examples, fewest: float
) -> Iterator[tuple[float, tuple[Region, Region]]]:
    """The best split by each feature."""
    members = region.members
    sums = examples.sums[members]
    whole = sums.sum(axis=0)

    def judged(inside: Array) -> tuple[float, int]:
        outside = whole - inside
        costs = _costs(inside).min(axis=-1) + _costs(outside).min(axis=-1)
        costs[np.minimum(inside[:, 0], outside[:, 0]) < fewest - _ROUNDING] = np.inf
        return float(costs.min()), int(costs.argmin())

    for name, every in examples.numbers.items():
        places = every[members]
        low, high = int(places.min()), int(places.max())
        if low == high:
            continue
        cost, best = judged(_by_group(places - low, high - low + 1, sums).cumsum(axis=0)[:-1])
        if cost < np.inf:
            inside, limit = places <= low + best, int(_LIMITS[low + best])
            lower = _half(region, members[inside], name, "<=", limit)
            yield cost, (lower, _half(region, members[~inside], name, ">=", limit + 1))
    for name in FIELDS:
        texts, groups = np.unique(examples.fields[name][members], return_inverse=True)
        if len(texts) == 1:
            continue
        cost, best = judged(_by_group(groups, len(texts), sums))
        if cost < np.inf:
            inside, text = groups == best, str(texts[best])
            # Values that no member has go to the larger part of the world, too.
            rest = dict(region.only).get(name, examples.texts[name]) - {text}
            one = _named(region, members[inside], name, {text})
            yield cost, (one, _named(region, members[~inside], name, rest))


def _by_group(groups: Array, count: int, sums: Array) -> Array:
    """The sums of each group."""
    ordered = np.argsort(groups, kind="stable")
    present, starts = np.unique(groups[ordered], return_index=True)
    found = np.zeros((count, sums.shape[1]))
    found[present] = np.add.reduceat(sums[ordered], starts, axis=0)
    return found


def _half(region: Region, members: Array, name: str, sign: str, value: int) -> Region:
    """A region narrowed by a condition; a weaker one on the same feature is dropped."""
    kept = tuple(c for c in region.conditions if (c[0], c[1]) != (name, sign))
    return Region(members, (*kept, (name, sign, value)), region.only)


def _named(region: Region, members: Array, name: str, texts: Set[str]) -> Region:
    kept = tuple(each for each in region.only if each[0] != name)
    return Region(members, region.conditions, (*kept, (name, frozenset(texts))))
