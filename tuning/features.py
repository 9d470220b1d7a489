"""Numbers that describe a candidate for a problem, from which its time can be learned."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from tvm.target import Target

from tvm_scatter.defaults import EXTENT_FEATURES, feature
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.reductions import FLOATS, REDUCTIONS
from tvm_scatter.tuning.candidates import Candidate, need_strategy

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
)
#: Knobs of all implementations together: columns are by position, not by name, so that a new
#: implementation changes no other's columns.
_KNOBS = 6


def features(
    problem: ScatterProblem, candidate: Candidate, distribution: str, target: Target
) -> np.ndarray[Any, Any]:
    """A float32 row for a candidate: sizes and knobs as logarithms, the rest as they are."""
    names = list(need_strategy(target).implementations)
    row = [_log(feature(name, problem)) for name in EXTENT_FEATURES]
    row += [_log(feature(name, problem)) for name in ("itemsize", "multiplicity", "collision")]
    row += [float(problem.data_dtype in FLOATS), float(len(problem.extents))]
    row += [float(problem.reduction == name) for name in REDUCTIONS]
    row += [float(getattr(problem, flag)) for flag in _FLAGS]
    row.append(math.log2(hottest_share(distribution, problem.extent.constant)))
    row += [float(candidate.implementation == name) for name in names]
    knobs = [_log(value) for _, value in candidate.config][:_KNOBS]
    row += knobs + [math.nan] * (_KNOBS - len(knobs))
    return np.array(row, np.float32)


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
    if distribution.startswith("zipf("):
        exponent = float(distribution[len("zipf(") : -1])
        return float(1.0 / np.sum(1.0 / np.arange(1, extent + 1, dtype=np.float64) ** exponent))
    if distribution.endswith(".npy"):
        recorded = np.load(distribution, allow_pickle=False).reshape(-1)
        return float(np.unique(recorded, return_counts=True)[1].max() / max(recorded.size, 1))
    return least
