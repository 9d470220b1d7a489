"""Tasks: the distinct scatter problems of a module, and how often each occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.lowering.plan import Way
from tvm_scatter.ops.arguments import need_module
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .errors import ScatterError
from .explain import planned

#: What a symbolic size ranges over where nobody says otherwise.
DEFAULT_RANGE = (16, 4096)


@dataclass(frozen=True)
class Task:
    """A scatter problem to be tuned.

    Parameters
    ----------
    problem : ScatterProblem
        What is computed. The bounds policy does not matter for the choice and is ``"drop"``.
    weight : int
        How often it occurs.
    where : tuple of str
        The variables of the module that hold its results.
    ranges : mapping of str to (int, int)
        For each symbolic size, the least and the greatest value to expect.
    """

    problem: ScatterProblem
    weight: int = 1
    where: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def representatives(self) -> dict[str, ScatterProblem]:
        """Static problems to measure in its stead: the ends of the ranges and their middle.

        Returns
        -------
        problems : dict of str to ScatterProblem
            By the sizes, as text; a static problem stands for itself, under an empty text.
        """
        if self.problem.is_static:
            return {"": self.problem}
        found = {}
        for place in (0.0, 0.5, 1.0):
            sizes = {
                name: _between(self.ranges.get(name, DEFAULT_RANGE), place)
                for name in self.problem.symbols
            }
            problem = self.problem.with_sizes(sizes)
            found[", ".join(f"{name}={size}" for name, size in sizes.items())] = problem
        return found

    def __str__(self) -> str:
        return str(self.problem).removesuffix(f", bounds={self.problem.bounds}")


def _between(limits: tuple[int, int], place: float) -> int:
    """A size on a logarithmic scale between two."""
    low, high = limits
    return round(low * (high / low) ** place)


def extract_tasks(
    mod: tvm.IRModule,
    target: Target | str,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> list[Task]:
    """The distinct scatter problems of a module.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of Relax functions, as an importer makes it.
    target : tvm.target.Target or str
        What it will be compiled for.
    ranges : mapping of str to (int, int), optional
        The least and the greatest value of symbolic sizes, by their names in the module.

    Returns
    -------
    tasks : list of Task
        In the order of their first occurrence; what the module's passes make of it is counted, so
        scatters that are merged are one.

    Raises
    ------
    ScatterError
        If there is no such target, a scatter is malformed, or a range is empty or of a size that
        no scatter has.
    """
    need_module("extract_tasks", mod)
    _check_ranges(ranges or {})
    found: dict[ScatterProblem, Task] = {}
    sizes: set[str] = set()
    _, plans = planned(mod, target)
    for where, plan in plans:
        if plan.way is not Way.SCATTER:
            continue
        problem = replace(plan.lowered[0].problem, bounds="drop")
        symbols = {symbol: str(size) for symbol, size in plan.symbols.items()}
        sizes |= set(symbols.values())
        known = {
            symbol: (ranges or {})[size]
            for symbol, size in symbols.items()
            if size in (ranges or {})
        }
        task = found.get(problem) or Task(problem, 0, (), known)
        found[problem] = replace(task, weight=task.weight + 1, where=(*task.where, where))
    for name in sorted(set(ranges or {}) - sizes, key=str):
        raise ScatterError(
            f"extract_tasks: no scatter has a symbolic size {name!r}; "
            f"there is: {', '.join(sorted(sizes)) or 'none'}."
        )
    return list(found.values())


def _check_ranges(ranges: Any) -> None:
    if not isinstance(ranges, Mapping):
        raise ScatterError(
            f"extract_tasks: ranges must map names of sizes to (low, high), not {ranges!r}."
        )
    for name, limits in ranges.items():
        pair = limits if isinstance(limits, tuple | list) else ()
        if len(pair) != 2 or not all(isinstance(limit, Integral) for limit in pair):
            raise ScatterError(
                f"extract_tasks: the range {limits!r} of {name!r} must be two integers, the least "
                "and the greatest."
            )
        low, high = pair
        if not 1 <= low <= high:
            raise ScatterError(f"extract_tasks: the range {low}:{high} of {name!r} is empty.")
