"""Variants of a test that take turns, so that a default run has every other or third of them.

``@pytest.mark.turns(2)``: of two parameters each value is still tried, with some values of the
other; of three, each pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest


def take_turns(items: Iterable[pytest.Item]) -> None:
    """Mark what a default run leaves out; a GPU compiles so quickly that it runs everything."""
    values: dict[Any, dict[int, int]] = defaultdict(dict)
    for item in items:
        mark = item.get_closest_marker("turns")
        if mark is None:
            continue
        at = 0
        for name, value in _values(item):
            known = values[item.function, name]  # type: ignore[attr-defined]
            at += known.setdefault(id(value), len(known))
        [every] = mark.args
        if at % every and not item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.exhaustive)


def _values(item: pytest.Item) -> Iterator[tuple[str, Any]]:
    """The values of the parameters, one of those that are given together."""
    together = {"implementation"}  # Given with the device.
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else names
        together.update(names[1:])
    for name, value in item.callspec.params.items():  # type: ignore[attr-defined]
        if name not in together:
            yield name, value
