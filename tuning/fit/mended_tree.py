"""A tree whose splits are chosen once more, to suit the tree that has grown below them.

A greedy search chooses the first splits for what two leaves would save. Given the halves as they
are, a split only decides which half answers for a problem, and the best one is found by running
sums. After M. Carreira-Perpiñán and P. Tavallali, "Alternating Optimization of Decision Trees",
2018.
"""

from __future__ import annotations

import numpy as np

from .decision_tree import Array, Examples, Node, Region, Split, divide, leaves, order

#: Times that a tree is grown, mended and pruned.
_ROUNDS = 3
#: Times that all splits are mended in between.
_PASSES = 4
#: What a problem costs to which none of a leaf's choices applies.
_NONE = 20.0


def grow(
    examples: Examples, regions: int, fewest: float, gain: float, price: float = 0.0
) -> list[Region]:
    """Divide problems into regions.

    Parameters
    ----------
    regions : int
        How many at most.
    fewest : float
        Weight of the problems that a region holds at least.
    gain : float
        What a split must save at least, in weighted logarithms of ratios.
    price : float
        What each further region must save in the end. Splits that save less are undone.
    """
    members = np.arange(len(examples.problems))
    root = Node()
    for _ in range(_ROUNDS):
        divide(root, examples, regions, fewest, gain)
        for _ in range(_PASSES):
            mend(root, members, examples)
        _choose(root, members, examples)
        root, _, _ = _pruned(root, members, examples, price)
    return list(leaves(root, Region(members), examples))


def _choose(node: Node, members: Array, examples: Examples) -> None:
    parts = node.parts(examples, members)
    for half, part in parts:
        _choose(half, part, examples)
    if not parts and members.size:
        node.choices = order(members, examples)


def mend(node: Node, members: Array, examples: Examples) -> None:
    """Choose the leaves of a tree anew, then each split, from the last to the first."""
    parts = node.parts(examples, members)
    for half, part in parts:
        mend(half, part, examples)
    if not parts:
        _choose(node, members, examples)
    elif members.size:
        first, second = (_costs(half, members, examples) for half, _ in parts)
        node.split = _best_split(members, first - second, examples) or node.split


def _best_split(members: Array, more: Array, examples: Examples) -> Split | None:
    """The split that saves the most; ``more`` is what the first half costs more than the second."""
    best, found = 0.0, None
    for name, every in (*examples.numbers.items(), *examples.fields.items()):
        places = every[members]
        sums = np.bincount(places, more)
        if name in examples.numbers:
            sums = sums.cumsum()
        at = int(sums.argmin())
        if found is None or sums[at] < best:
            best, found = float(sums[at]), Split(name, at)
    return found


def _costs(node: Node, members: Array, examples: Examples) -> Array:
    """The cost of each problem when a tree chooses for it."""
    if node.split is not None and node.halves is not None:
        inside = node.split.inside(examples, members)
        costs = np.empty(len(members))
        costs[inside] = _costs(node.halves[0], members[inside], examples)
        costs[~inside] = _costs(node.halves[1], members[~inside], examples)
        return costs
    costs = np.full(len(members), np.nan)
    for choice in node.choices:
        costs = np.where(np.isnan(costs), examples.penalty[members, choice], costs)
    weighed: Array = np.where(np.isnan(costs), _NONE, costs) * examples.weights[members]
    return weighed


def _pruned(
    node: Node, members: Array, examples: Examples, price: float
) -> tuple[Node, float, int]:
    """The cheapest tree that pruning leaves, prices included; its cost and its number of leaves."""
    leaf = Node()
    _choose(leaf, members, examples)
    ways = [(leaf, float(_costs(leaf, members, examples).sum()), 1)]
    parts = node.parts(examples, members)
    if parts:
        for half, part in parts:
            if len(part) == len(members):
                return _pruned(half, members, examples, price)
        (first, cost, some), (second, more, others) = (
            _pruned(half, part, examples, price) for half, part in parts
        )
        ways.append((Node(node.split, (first, second)), cost + more, some + others))
    return min(ways, key=lambda way: way[1] + price * way[2])
