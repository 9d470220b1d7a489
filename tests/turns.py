"""Variants of a test that take turns, so that a default run has every other or third of them.

``@pytest.mark.turns(2)``: of two parameters each value is still tried, with some values of the
other; of three, each pair. Devices take turns without being asked, from one test to the next:
half of the tests run on the CPU and half on the simulated GPU. ``@pytest.mark.each_device`` is for
tests of what may be right on one and wrong on the other: of memory, bad indices, kernels, and those
that try less on one of them. ``@pytest.mark.on_cpu`` is for what is dear on a simulated GPU, where
another test has the like. What each implementation must do is tried with each, unless it is so
dear that they take turns, too.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest


def take_turns(items: Iterable[pytest.Item]) -> None:
    """Mark what a default run leaves out; a GPU compiles so quickly that it runs everything."""
    values: dict[Any, dict[int, int]] = defaultdict(dict)
    turns: dict[Any, dict[int, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if item.get_closest_marker("on_cpu") and _device(item) == "cuda":
            item.add_marker(pytest.mark.exhaustive)
        every, function = _every(item), item.function  # type: ignore[attr-defined]
        if every == 1:
            continue
        at = 0
        for name, value in _values(item):
            known = values[function, name]
            at += known.setdefault(id(value), len(known))
        if not any(item.get_closest_marker(mark) for mark in ("gpu", "exhaustive")):
            turns[function][at % every].append(item)
    for function, variants in turns.items():
        # Not the first ones of every test, which would be one device for all.
        taken = zlib.crc32(function.__name__.encode()) % len(variants)
        for at, turn in enumerate(variants.values()):
            for item in turn if at != taken else ():
                item.add_marker(pytest.mark.exhaustive)


def _every(item: pytest.Item) -> int:
    """One in how many variants a default run takes."""
    mark = item.get_closest_marker("turns")
    if mark is not None:
        return int(mark.args[0])
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    alike = "device" in parameters and "implementation" not in parameters
    chosen = any(item.get_closest_marker(mark) for mark in ("each_device", "on_cpu"))
    return 2 if alike and not chosen else 1


def _device(item: pytest.Item) -> str:
    return str(item.callspec.params["device"])  # type: ignore[attr-defined]


def _values(item: pytest.Item) -> Iterator[tuple[str, Any]]:
    """The values of the parameters, one of those that are given together."""
    together: set[str] = set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else names
        together.update(names[1:])
    for name, value in item.callspec.params.items():  # type: ignore[attr-defined]
        if name not in together:
            yield name, value
