"""The grid against PyTorch, with every implementation forced in turn where it applies."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from grid import Point, points
from harness import applicable, assert_same, run_all
from tally import Tally

from tvm_scatter import strategy_for

#: How many points of the grid each implementation is held to where not the whole is asked for.
MOST = 2
PER_MODULE = 64
#: The whole grid is tested in so many parts, which share out well among processes.
_PARTS = 8


def check(chosen: list[Point], device: str, implementation: str, most: int | None = None) -> int:
    """Compile what an implementation takes, a module for many, and compare; how many there were.

    Of more than ``most`` so many are taken, evenly spread.
    """
    named = {f"point{i}": point for i, point in enumerate(chosen)}
    calls = {name: (point.build, point.arrays()) for name, point in named.items()}
    taken = applicable(calls, implementation, device)
    if most is not None:
        taken = taken[:: -(-len(taken) // most)] if taken else []
    checked = 0
    for start in range(0, len(taken), PER_MODULE):
        part = {name: calls[name] for name in taken[start : start + PER_MODULE]}
        for name, result in run_all(part, device, implementation=implementation).items():
            expected = named[name].expected()
            if expected is not None:
                # A mean of halves is divided in another precision than PyTorch's.
                tolerance = 1e-2 if expected.dtype.itemsize == 2 else 1e-6
                exact = named[name].reduction != "mean"
                assert_same(result, expected, f"{named[name]}", 0 if exact else tolerance)
                checked += 1
    return checked


@pytest.mark.turns(4)
def test_grid(device: str, implementation: str, tally: Tally) -> None:
    strategy = strategy_for(device)
    assert strategy is not None
    turn = list(strategy.implementations).index(implementation)
    count = check(points(1)[turn % 3 :: 3], device, implementation, MOST)
    assert count
    tally("points of the grid by an implementation", count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(_PARTS))
def test_whole_grid(device: str, implementation: str, part: int, tally: Tally) -> None:
    count = check(points(6)[part::_PARTS], device, implementation)
    if not count:
        pytest.skip("the implementation takes none of these points")
    tally("points of the grid by an implementation", count)


def test_every_kind_is_met() -> None:
    kinds = {(point.dtype, point.reduction, point.include_self) for point in points(6)}
    assert len(kinds) == 9 * 11
