"""Tasks: the distinct scatter problems of a module, and how often each occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from numbers import Integral
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.lowering.plan import Way
from tvm_scatter.ops.arguments import need_module
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .errors import ScatterError
from .explain import planned

#: The default range of a symbolic size.
DEFAULT_RANGE = (16, 4096)


@dataclass(frozen=True)
class Task:
    """A scatter problem to be tuned.

    Parameters
    ----------
    problem : ScatterProblem
        The problem. Its bounds policy is always ``"drop"``, because the choice of an
        implementation does not depend on it.
    weight : int
        How often the problem occurs in the module.
    where : tuple of str
        The variables of the module that hold the results.
    ranges : mapping of str to (int, int)
        For each symbolic size, the least and the greatest value to expect.
    """

    problem: ScatterProblem
    weight: int = 1
    where: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def representatives(self) -> dict[str, ScatterProblem]:
        """Static problems to measure instead: sizes at both ends of the ranges and in the middle.

        Returns
        -------
        problems : dict of str to ScatterProblem
            The keys are texts of the sizes. For a static problem the only key is empty, and the
        value is the problem itself.
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

    def is_named(self, pattern: str) -> bool:
        """Whether its text has a part that a pattern fits, in which ``*`` is any text."""
        return fnmatchcase(str(self), f"*{pattern}*")

    def __str__(self) -> str:
        return str(self.problem).removesuffix(f", bounds={self.problem.bounds}")


def _between(limits: tuple[int, int], place: float) -> int:
    """The size at a place, from 0 to 1, between two limits on a logarithmic scale."""
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
        The target to compile for.
    ranges : mapping of str to (int, int), optional
        The least and the greatest value of symbolic sizes, by the names of the sizes in the module.

    Returns
    -------
    tasks : list of Task
        In the order of their first occurrence. The passes of this package run first, so scatters
        that they merge count as one.

    Raises
    ------
    ScatterError
        If the target is unknown, if a scatter is malformed, if a range is empty, or if no scatter
        has a size of that name.
    """
    need_module("extract_tasks", mod)
    _check_ranges(ranges or {})
    found: dict[ScatterProblem, Task] = {}
    sizes: set[str] = set()
    _, plans = planned(mod, target)
    for where, plan in plans:
        if plan.way is not Way.SCATTER:
            continue
        problem = replace(plan.lowered[0].problem.measured, bounds="drop")
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
