"""Where a kernel divides its work: small problems at the borders of warps, chunks and units.

A bug at such a border shows in no random problem, or seldom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import status
from harness import ProblemRunner, assert_same, in_order
from random_problems import draw_operands

from tvm_scatter import ScatterProblem
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

RANDOM = np.random.default_rng(0)
#: One more than a chunk of 32, so that the last chunk has one entry.
CHUNK = 33
#: A bucket of 4096 places, and updates of which two units have part.
BUCKET, UNITS = 4096, 40_000


@dataclass(frozen=True)
class Edge:
    """A problem of rows for one implementation, and indices for it; without any, random ones."""

    implementation: str
    reduction: str
    extent: int
    width: int
    count: int
    indices: tuple[Any, ...] = ()
    knobs: Mapping[str, int] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problem(self) -> ScatterProblem:
        settings: dict[str, Any] = {
            "data_dtype": "int32",
            "index_dtype": "int64",
            "bounds": "drop",
            "deterministic": self.reduction == "update",
            **self.more,
        }
        return ScatterProblem(
            batch=SymbolicSize(),
            extents=(SymbolicSize(self.extent),),
            slice=SymbolicSize(self.width),
            count=SymbolicSize(self.count),
            reduction=self.reduction,
            **settings,
        )


def _last_two(count: int) -> list[Any]:
    """Two updates of one place, side by side and far apart, in front and at the end."""
    pairs = ((0, 1), (count - 2, count - 1), (0, count - 1))
    indices = []
    for pair in pairs:
        index = np.full(count, 1)
        index[list(pair)] = 2
        indices.append(index)
    return indices


def _hot(count: int, extent: int, place: int) -> Any:
    return np.where(np.arange(count) % 2, place, RANDOM.integers(0, extent, count))


EDGES = {
    "search": Edge("gather_form", "update", 5, 260, 70, _last_two(70), {"search": 1}),
    "later_one": Edge("gather_form", "update", 5, 8, 70, _last_two(70), more={"in_place": True}),
    "map": Edge("gather_form", "update", 50, 6, 500, knobs={"search": 0}),
    "buckets": Edge(
        "partitioned",
        "add",
        40 * BUCKET,
        1,
        UNITS,
        (
            RANDOM.integers(0, 40 * BUCKET, UNITS),
            RANDOM.integers(0, BUCKET, UNITS),
            _hot(UNITS, BUCKET, 40),
        ),
        {"bucket_bits": 12},
    ),
    "lists": Edge("grouped", "add", 3, 2, 110, (np.repeat([0, 1, 2], [50, 50, 10]),)),
    "tiles_of_lists": Edge("grouped", "add", 7, 3, 3001),
    "mean_of_lists": Edge("grouped", "mean", 9, 4, 50),
    "segments": Edge("segmented", "add", 3, 2, 300, more={"deterministic": True}),
    "runs": Edge(
        "sort_based", "add", 2, 1, CHUNK, (np.zeros(CHUNK, int),), more={"include_self": False}
    ),
    "levels_of_runs": Edge("sort_based", "add", 2, 1, 3001),
    "order": Edge("sort_based", "update", 3, 2, 500),
    "lines": Edge("sequential", "max", 30, 3, 40, more={"data_dtype": "float32"}),
    "long_rows": Edge("parallel_injective", "add", 3, 2100, 5),
    "once": Edge("parallel_injective", "add", 64, 4, 10, more={"unique": True}),
    "bytes": Edge("parallel_injective", "mul", 9, 1, 40, more={"data_dtype": "int8"}),
    "means": Edge("parallel_injective", "mean", 9, 3, 40, more={"data_dtype": "int32"}),
    "unsigned": Edge(
        "parallel_injective",
        "add",
        5,
        1,
        40,
        (np.array([2**32 - 1, 2**31, 4, 0] * 10),),
        more={"index_dtype": "uint32", "wrap_negative": True},
    ),
    "rows": Edge("row_resident", "add", 11, 3, 2000),
    "bins": Edge("lane_bins", "add", 3, 1, 4001),
    "copies_of_bins": Edge("shared_bins", "add", 3, 1, 4001),
}


@pytest.fixture(params=["cuda", pytest.param("gpu", marks=pytest.mark.gpu)])
def on_cuda(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not status():
        pytest.skip(status().reason)
    return "cuda"


@pytest.mark.parametrize("name", EDGES)
def test_edges(on_cuda: str, name: str) -> None:
    edge = EDGES[name]
    problem = edge.problem
    runner = ProblemRunner(on_cuda)
    runner.add("main", problem, edge.implementation, edge.knobs)
    data, (drawn,), updates = draw_operands(problem, seed=1)
    for order in ("forward", "mixed", "eager"):
        for index in edge.indices or (drawn,):
            index = index.astype(problem.index_dtype)
            with in_order(order):
                result = runner.run("main", data, [index], updates, in_place=problem.in_place)
            expected = scatter_reference(problem, data, [index], updates)
            assert_same(result, expected, f"{name}, {order}")


def test_bins_of_lanes_hold_more_than_16_bits(on_cuda: str) -> None:
    """A lane adds 256, 1 and -256, of which a sum of 16 bits keeps nothing."""
    threads, pack = 792 * 32, 2
    count = 3 * threads * pack
    more = {"data_dtype": "bfloat16"}
    problem = Edge("lane_bins", "add", 1, 1, count, more=more).problem
    runner = ProblemRunner(on_cuda)
    runner.add("main", problem, "lane_bins")
    data, indices, updates = draw_operands(problem, seed=1)
    data[:], indices[0][:] = 0, 0
    updates.reshape(3, -1)[:] = np.array([[256], [1], [-256]])
    result = runner.run("main", data, indices, updates)
    assert float(result[0]) == pytest.approx(count / 3, rel=1 / 256)
