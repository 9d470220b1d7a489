"""A small decision tree over problems, grown where a split saves the most time.

Cost-sensitive: what counts is not how often the choice is the best one but how much slower it is.
What a region costs is made of sums over its problems, so that all splits by one feature are judged
by running sums over its limits. ``mended_tree`` then mends the splits and grows the tree on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.default_rules import EXTENT_FEATURES, feature

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
    """Problems, and for each the time of each implementation over that of the best.

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
        self.texts, self.fields = dict[str, list[str]](), dict[str, Array]()
        for name in FIELDS:
            texts = [str(getattr(problem, name)) for problem in self.problems]
            found, self.fields[name] = np.unique(texts, return_inverse=True)
            self.texts[name] = found.tolist()
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
        Positions of the problems among the examples.
    conditions : tuple of (feature, comparison, value)
        On sizes.
    only : tuple of (field, texts)
        Fields that have one of some values.
    """

    members: Array
    conditions: tuple[tuple[str, str, int], ...] = ()
    only: tuple[tuple[str, frozenset[str]], ...] = ()


@dataclass(frozen=True)
class Split:
    """Divides a region: by a limit on a number, or by whether a field has one of some texts."""

    name: str
    place: int

    def inside(self, examples: Examples, members: Array) -> Array:
        """Which of some problems are in the first half."""
        found: Array
        if self.name in examples.numbers:
            found = examples.numbers[self.name][members] <= self.place
        else:
            found = examples.fields[self.name][members] == self.place
        return found

    def halves(self, region: Region, examples: Examples) -> tuple[Region, Region]:
        """A region's two parts."""
        inside, name = self.inside(examples, region.members), self.name
        first, second = region.members[inside], region.members[~inside]
        if name in examples.numbers:
            limit = int(_LIMITS[self.place])
            lower = _half(region, first, name, "<=", limit)
            return lower, _half(region, second, name, ">=", limit + 1)
        text = examples.texts[name][self.place]
        # Values that no member has go to the larger part of the world, too.
        rest = dict(region.only).get(name, frozenset(examples.texts[name])) - {text}
        return _named(region, first, name, {text}), _named(region, second, name, rest)


@dataclass(eq=False)
class Node:
    """A region that is divided, or a leaf.

    Attributes
    ----------
    choices : list of int
        Of a leaf: implementations in order; each is for problems that those before it do not take.
    """

    split: Split | None = None
    halves: tuple[Node, Node] | None = None
    choices: list[int] = field(default_factory=list)

    def parts(self, examples: Examples, members: Array) -> list[tuple[Node, Array]]:
        """The halves, each with the given problems that lie in it; empty for a leaf."""
        if self.split is None or self.halves is None:
            return []
        inside = self.split.inside(examples, members)
        return list(zip(self.halves, (members[inside], members[~inside]), strict=True))


def order(members: Array, examples: Examples) -> list[int]:
    """Implementations for some problems; each is the best where those before it do not apply."""
    left, found = members, list[int]()
    while left.size:
        sums = _addends(examples.penalty[left], examples.weights[left], _NEITHER_IN_THE_END)
        best = int(_costs(sums.sum(axis=0)).argmin())
        found.append(best)
        left = left[~np.isfinite(examples.penalty[left, best])]
    return found


def divide(root: Node, examples: Examples, regions: int, fewest: float, gain: float) -> None:
    """Divide the leaves of a tree, best split first.

    Parameters
    ----------
    regions : int
        How many leaves at most.
    fewest : float
        Weight of the problems that a leaf holds at least.
    gain : float
        What a split must save at least, in weighted logarithms of ratios.
    """
    tie = count()
    queue: list[tuple[float, int, Node, Array, Split | None]] = []

    def push(node: Node, members: Array) -> None:
        parts = node.parts(examples, members)
        if parts:
            for half, part in parts:
                push(half, part)
            return
        cost = float(_costs(examples.sums[members].sum(axis=0)).min()) if members.size else 0.0
        splits = _splits(members, examples, fewest) if members.size else iter(())
        best, split = min(splits, key=lambda found: found[0], default=(cost, None))
        heapq.heappush(queue, (best - cost, next(tie), node, members, split))

    push(root, np.arange(len(examples.problems)))
    while len(queue) < regions and queue[0][4] is not None and -queue[0][0] >= gain:
        _, _, node, members, split = heapq.heappop(queue)
        assert split is not None
        node.split, node.halves = split, (Node(), Node())
        push(node, members)


def leaves(node: Node, region: Region, examples: Examples) -> Iterator[Region]:
    """The regions of a tree."""
    if node.split is None or node.halves is None:
        yield region
        return
    for half, part in zip(node.halves, node.split.halves(region, examples), strict=True):
        yield from leaves(half, part, examples)


def _addends(penalty: Array, weights: Array, neither: float) -> Array:
    """The terms of each problem in the sums that make up the cost of a region.

    These are its weight; for each implementation whether it applies, and its penalty; and for each
    pair the penalty of the second where the first does not apply.
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
    """The cost of each first choice, with the best second one where the first does not apply."""
    names = round((sums.shape[-1]) ** 0.5) - 1
    applies, first, second = np.split(sums[..., 1:], [names, 2 * names], axis=-1)
    best = second.reshape(*second.shape[:-1], names, names).min(axis=-1)
    # A choice that applies nowhere is none.
    costs: Array = np.where(applies > 0.5, first + best, np.inf)
    return costs


def _splits(members: Array, examples: Examples, fewest: float) -> Iterator[tuple[float, Split]]:
    """The best split by each feature, and what its halves cost."""
    sums = examples.sums[members]
    whole = sums.sum(axis=0)
    for name, every in (*examples.numbers.items(), *examples.fields.items()):
        places = every[members]
        low, high = int(places.min()), int(places.max())
        if low == high:
            continue
        inside = _by_group(places - low, high - low + 1, sums)
        if name in examples.numbers:
            inside = inside.cumsum(axis=0)[:-1]
        outside = whole - inside
        costs = _costs(inside).min(axis=-1) + _costs(outside).min(axis=-1)
        costs[np.minimum(inside[:, 0], outside[:, 0]) < fewest - _ROUNDING] = np.inf
        if costs.min() < np.inf:
            yield float(costs.min()), Split(name, low + int(costs.argmin()))


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
