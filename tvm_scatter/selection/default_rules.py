"""The default choice: rules over rank, sizes and data types. The first rule that matches wins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize

Condition = tuple[str, str, int]

_COMPARE = {"<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b}
EXTENT_FEATURES = (
    "batch",
    "extent",
    "slice",
    "count",
    "slab",
    "data_size",
    "update_size",
    "items",
    "width",
    "destinations",
)


@dataclass(frozen=True)
class Rule:
    """Choose ``implementation`` if all ``conditions`` hold.

    Parameters
    ----------
    conditions : tuple of (feature, comparison, value)
        The feature is one of :data:`EXTENT_FEATURES`, ``rank``, ``itemsize`` (bytes of an
        element), ``multiplicity`` (updates for each destination) or ``collision`` (what it takes
        where updates meet in memory: 0 a store, 1 an atomic instruction, 2 a loop of
        compare-and-swap); the comparison ``<=`` or ``>=``.
    only : mapping
        Fields of the problem that must have one of the listed values.
    because : str
        One clause that ``explain`` prints.
    """

    implementation: str
    conditions: tuple[Condition, ...] = ()
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    config: Mapping[str, int] = field(default_factory=dict)
    because: str = ""


@cache
def default_rules(target_kind: str, symbolic: bool = False) -> tuple[Rule, ...]:
    """The rules for a target kind, in the order in which they are tried.

    The list is empty for kinds that were never measured. For problems with symbolic sizes
    (``symbolic``), every rule may become a branch at run time, so the file may hold a shorter list
    for them.
    """
    path = resources.files("tvm_scatter.strategies") / "defaults" / f"{target_kind}.json"
    if not path.is_file():
        return ()
    found = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Rule(
            implementation=rule["implementation"],
            conditions=tuple((f, c, int(v)) for f, c, v in rule.get("conditions", ())),
            only={name: tuple(values) for name, values in rule.get("only", {}).items()},
            config=rule.get("config", {}),
            because=rule.get("because", ""),
        )
        for rule in (found.get("symbolic") if symbolic else None) or found["rules"]
    )


def feature(name: str, problem: ScatterProblem) -> int | None:
    """A feature of a problem as a number, or ``None`` if it depends on symbolic sizes."""
    if name == "rank":
        return problem.rank
    if name == "itemsize":
        return item_bytes(problem.data_dtype)
    if name == "collision":
        return _collision(problem)
    if name == "multiplicity":
        items, places = problem.items, problem.destinations
        if not (items.is_static and places.is_static):
            return None
        return items.constant // max(places.constant, 1)
    extent: SymbolicSize = getattr(problem, name)
    return extent.constant if extent.is_static else None


def _collision(problem: ScatterProblem) -> int:
    if problem.only_stores:
        return 0
    # Two 16-bit floats that lie next to each other are added by one instruction.
    reduces = problem.reduces
    pairs = problem.data_dtype in ("float16", "bfloat16") and reduces.has_vector_atomic
    if item_bytes(problem.data_dtype) < 4 and not (pairs and problem.slice.constant % 2 == 0):
        return 2
    return 1 if reduces.has_atomic else 2


def holds(rule: Rule, problem: ScatterProblem) -> tuple[bool | None, tuple[Condition, ...]]:
    """Whether a rule holds, or ``None`` with the conditions to test at run time.

    If a feature depends on symbolic sizes and is not itself a size, its condition counts as false.
    """
    for name, values in rule.only.items():
        if getattr(problem, name) not in values:
            return False, ()
    left: list[Condition] = []
    for name, comparison, value in rule.conditions:
        known = feature(name, problem)
        if known is None:
            if name not in EXTENT_FEATURES:
                return False, ()
            left.append((name, comparison, value))
        elif not _COMPARE[comparison](known, value):
            return False, ()
    return (None if left else True), tuple(left)


def compare(left: Any, comparison: str, right: Any) -> Any:
    """Apply a rule's comparison to numbers or expressions."""
    return _COMPARE[comparison](left, right)
