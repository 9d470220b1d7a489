"""Features of a candidate for a problem, from which a model learns its time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tvm.target import Target

from tvm_scatter.problem.reductions import FLOATS, REDUCTIONS, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.tuning.operands.distributions import read_recorded
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy

from .problem_features import EXTENT_FEATURES, feature

_FLAGS = (
    "index_batch",
    "index_slice",
    "update_batch",
    "update_count",
    "update_slice",
    "include_self",
    "unique",
    "deterministic",
    "in_place",
    "needs_order",
    "only_stores",
)
#: Knobs of all implementations together: columns are by position, not by name, so that a new
#: implementation changes no other's columns.
_KNOBS = 6
_ACCESS_BYTES = 16
_INDEX_BYTES = 8
#: Fewer updates than this of a place are as good as none.
_HARDLY = 1e-3
#: Terms of a sum over destinations that are added one by one.
_TERMS = 4096


def features(
    problem: ScatterProblem, candidate: Candidate, distribution: str, target: Target
) -> np.ndarray[Any, Any]:
    """The features of a candidate, float32: logarithms of sizes and knobs, the rest as they are."""
    return rows(problem, [candidate], [distribution], target)[0]


def rows(
    problem: ScatterProblem,
    candidates: Sequence[Candidate],
    distributions: Sequence[str],
    target: Target,
) -> np.ndarray[Any, Any]:
    """A row for each candidate and, within it, each distribution."""
    names = tuple(need_strategy(target).implementations)
    posed = _of_problem(problem)
    heads = [np.array([*posed, *_repeats(problem, name)], np.float32) for name in distributions]
    return np.stack(
        [np.concatenate([head, _of_candidate(c, names)]) for c in candidates for head in heads]
    )


def _of_problem(problem: ScatterProblem) -> list[float]:
    row = [_log(feature(name, problem)) for name in EXTENT_FEATURES]
    row += [_log(feature(name, problem)) for name in ("itemsize", "multiplicity", "collision")]
    row += [float(problem.data_dtype in FLOATS), float(len(problem.extents))]
    row += [float(problem.reduction == name) for name in REDUCTIONS]
    row += [float(getattr(problem, flag)) for flag in _FLAGS]
    if not problem.is_static:
        return row + [math.nan] * 5
    size = item_bytes(problem.data_dtype)
    width = problem.width.constant * size
    # What a thread can move at once, and whether an output fits where bytes are counted.
    return [
        *row,
        _log(moved_bytes(problem)),
        _log(width),
        _log(min(width & -width, _ACCESS_BYTES)),
        _log(problem.slab.constant * size),
        math.log2(max(problem.items.constant, 1) / max(problem.destinations.constant, 1)),
    ]


def _repeats(problem: ScatterProblem, distribution: str) -> list[float]:
    """The hottest place's share of the updates, and how many updates that is."""
    share = hottest_share(distribution, problem.extent.constant)
    if not problem.is_static:
        return [math.log2(share), math.nan]
    lines = problem.batch.constant if problem.index_batch else 1
    updates = share * problem.items.constant / max(lines, 1)
    return [math.log2(share), math.log2(_HARDLY + updates)]


def moved_bytes(problem: ScatterProblem) -> int:
    """Bytes of a static problem that must move, each read or written once."""
    copied = 0 if problem.in_place else 2 * problem.data_size.constant
    elements = copied + problem.update_size.constant
    return elements * item_bytes(problem.data_dtype) + problem.items.constant * _INDEX_BYTES


@cache
def _of_candidate(candidate: Candidate, names: tuple[str, ...]) -> np.ndarray[Any, Any]:
    row = [float(candidate.implementation == name) for name in names]
    knobs = [_log(value) for _, value in candidate.config][:_KNOBS]
    return np.array(row + knobs + [math.nan] * (_KNOBS - len(knobs)), np.float32)


def _log(value: int | None) -> float:
    return math.nan if value is None else math.log2(1 + value)


@cache
def hottest_share(distribution: str, extent: int) -> float:
    """The share of the updates that the most frequent destination gets."""
    least = 1.0 / max(extent, 1)
    if distribution == "all-on-one":
        return 1.0
    if distribution == "half-on-one":
        return 0.5 + 0.5 * least
    zipf = re.fullmatch(r"zipf\((\d{1,3}(?:\.\d{1,9})?)\)", distribution)
    if zipf is not None:
        return 1.0 / _sum_of_powers(extent, float(zipf[1]))
    if distribution.endswith(".npy"):
        recorded = read_recorded(Path(distribution))
        return float(np.unique(recorded, return_counts=True)[1].max() / max(recorded.size, 1))
    return least


def _sum_of_powers(count: int, exponent: float) -> float:
    """The sum of ``n ** -exponent`` for n from 1 to ``count``."""
    first = min(count, _TERMS)
    total = _first_powers(first, exponent)
    if count > first:
        # The integral, and half of what it leaves at its ends (Euler and Maclaurin).
        ends = [float(n) ** -exponent for n in (first, count)]
        if exponent == 1.0:
            total += math.log(count / first)
        else:
            total += (count * ends[1] - first * ends[0]) / (1.0 - exponent)
        total += (ends[1] - ends[0]) / 2.0
    return total


@cache
def _first_powers(count: int, exponent: float) -> float:
    return float(np.sum(np.arange(1, count + 1, dtype=np.float64) ** -exponent))
