"""Features of a problem that are its sizes, or follow from them."""

from __future__ import annotations

from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.problem.vectors import needs_swaps

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
    """How updates meet in memory: by a store, an atomic instruction or compare-and-swap."""
    if problem.only_stores:
        return 0
    return 2 if needs_swaps(problem) else 1
