"""Describes how a kind of target orders updates by destination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .operands import Operands

#: The type of the numbers of an order, and so the most updates and destinations.
DTYPE, LIMIT = "int32", (1 << 31) - 1


def numbers_fit(problem: ScatterProblem) -> bool:
    """Whether an order can number the updates and places of a problem, as far as they are known."""
    return all(size.constant < LIMIT for size in (problem.items, problem.destinations))


@dataclass(frozen=True)
class Ordering:
    """A stable sort of updates by destination.

    Attributes
    ----------
    workspace : callable
        Bytes of scratch memory for a problem and its sizes on a target.
    emit : callable
        Emits the sort. Its arguments are operands, whose output is the permutation, and the buffer
        of the offsets. See :func:`tvm_scatter.order`.
    cost : float
        What it costs, as a part of what a radix sort does.
    """

    workspace: Callable[[ScatterProblem, Sizes, Any], Any]
    emit: Callable[[Operands, Any], None]
    cost: float = 1.0
