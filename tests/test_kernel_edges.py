"""Where a kernel divides its work: small problems at the borders of warps, chunks and units.

A bug at such a border shows in no random problem, or seldom.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from harness import ProblemRunner, assert_same, in_order
from random_problems import draw_operands

from tvm_scatter import ScatterProblem
from tvm_scatter.problem.reductions import sum_error_bound
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

RANDOM = np.random.default_rng(0)
#: One more than a chunk of 32, so that the last chunk has one entry.
CHUNK = 33
#: A bucket of 4096 places, and updates of which two units have part.
BUCKET, UNITS = 4096, 40_000
#: The fewest updates of a unit of `tiled`, and of a tile.
TILED_UNIT, TILED_LEAST = 1 << 15, 2048


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
    # 32 768 updates of one bucket are a unit, and 64 of each thread a window.
    "tiled_units": Edge(
        "tiled",
        "add",
        1024,
        1,
        3 * TILED_UNIT,
        (
            RANDOM.integers(0, 1024, 3 * TILED_UNIT),
            RANDOM.integers(256, 512, 3 * TILED_UNIT),
            _hot(3 * TILED_UNIT, 1024, 300),
            np.sort(RANDOM.integers(200, 600, 3 * TILED_UNIT)),
            RANDOM.integers(768, 1024, 3 * TILED_UNIT),
        ),
        {"bucket_bits": 8, "threads": 512},
    ),
    "tiled_windows": Edge("tiled", "max", 200, 1, 2 * TILED_UNIT, knobs={"threads": 512}),
    "tiled_groups": Edge(
        "tiled",
        "add",
        300,
        1,
        513 * TILED_LEAST + 7,
        knobs={"threads": 512, "per_thread": 4, "bucket_bits": 8},
    ),
    "tiled_in_place": Edge(
        "tiled",
        "mul",
        700,
        1,
        2 * TILED_UNIT,
        (RANDOM.integers(0, 9, 2 * TILED_UNIT),),
        {"bucket_bits": 8},
        {"in_place": True},
    ),
    "tiled_once": Edge(
        "tiled",
        "update",
        70_001,
        1,
        50_000,
        (RANDOM.permutation(70_001)[:50_000],),
        more={"deterministic": False, "data_dtype": "float16"},
    ),
    # Parts of 67 bins, the last of which has 66, and none in the eighth of five.
    "parts_of_bins": Edge("split_bins", "add", 200, 1, 4001, knobs={"parts": 3}),
    "parts_without_bins": Edge("split_bins", "max", 5, 1, 3000, knobs={"parts": 4}),
    # 24 columns of which the last block of a batch has two.
    "columns": Edge("column_resident", "add", 11, 50, 300, knobs={"columns": 24}),
    "columns_alone": Edge(
        "column_resident", "max", 30, 9, 70, knobs={"columns": 8}, more={"include_self": False}
    ),
    # Spans of 1024 elements begin and end within rows, and within batches.
    "patches": Edge("patched", "add", 77, 100, 90, _last_two(90)),
    "patches_in_order": Edge("patched", "update", 3000, 1, 700, knobs={"per_thread": 2}),
    "patches_of_bytes": Edge(
        "patched", "mul", 9001, 1, 300, more={"data_dtype": "int8", "deterministic": True}
    ),
    "patches_alone": Edge("patched", "min", 50, 50, 300, more={"include_self": False}),
    "patches_in_place": Edge("patched", "add", 1100, 1, 1000, more={"in_place": True}),
    # Blocks own three rows or two; of what goes to one place a whole block takes some.
    "owned": Edge("owned_rows", "add", 700, 40, 3000),
    "owned_and_long": Edge(
        "owned_rows",
        "add",
        300,
        70,
        1500,
        (np.where(RANDOM.random(1500) < 0.5, 299, RANDOM.integers(0, 300, 1500)),),
        knobs={"lanes": 16, "unroll": 2},
        more={"data_dtype": "float32"},
    ),
    "owned_by_few": Edge("owned_rows", "max", 40, 9000, 130, _last_two(130)),
    "owned_in_place": Edge("owned_rows", "max", 700, 33, 1000, more={"in_place": True}),
    "owned_means": Edge("owned_rows", "mean", 500, 20, 900, more={"include_self": False}),
    # Two spans of 256 accesses, and a tail of three elements.
    "patches_held": Edge(
        "patched", "add", 1451, 1, 64, (RANDOM.integers(1400, 1451, 64),), knobs={"held": 1}
    ),
    "patches_held_in_order": Edge(
        "patched", "update", 2059, 1, 40, _last_two(40), knobs={"held": 1, "per_thread": 2}
    ),
    "patches_held_of_bytes": Edge(
        "patched",
        "mul",
        9001,
        1,
        30,
        knobs={"held": 1},
        more={"data_dtype": "int8", "deterministic": True},
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


TURNS = 3


@functools.cache
def some_edges(device: str, turn: int) -> ProblemRunner:
    """One module for a turn, since compiling is what takes the time."""
    runner = ProblemRunner(device)
    for name, edge in list(EDGES.items())[turn::TURNS]:
        runner.add(name, edge.problem, edge.implementation, edge.knobs)
    return runner


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.turns(TURNS)
def test_edges(on_cuda: str, name: str) -> None:
    edge, runner = EDGES[name], some_edges(on_cuda, list(EDGES).index(name) % TURNS)
    problem = edge.problem
    data, (drawn,), updates = draw_operands(problem, seed=1)
    for order in ("forward", "mixed", "eager"):
        for index in edge.indices or (drawn,):
            index = index.astype(problem.index_dtype)
            with in_order(order):
                result = runner.run(name, data, [index], updates, in_place=problem.in_place)
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


def test_of_plain_updates_one_wins_whole(on_cuda: str) -> None:
    """Also where a bucket has so many that several blocks write it, and where none has any."""
    count = 3 * TILED_UNIT
    more = {"deterministic": False, "data_dtype": "float64"}
    problem = Edge("tiled", "update", 2000, 1, count, more=more).problem
    runner = ProblemRunner(on_cuda)
    runner.add("main", problem, "tiled", {"bucket_bits": 8})
    data, _, updates = draw_operands(problem, seed=1)
    updates[:] = 1000 + np.arange(count).reshape(updates.shape)
    index = np.where(RANDOM.random(count) < 0.9, RANDOM.integers(512, 768, count), 1500)
    for order in ("forward", "mixed"):
        with in_order(order):
            result = runner.run("main", data, [index], updates).reshape(-1)
        hit = np.unique(index)
        np.testing.assert_array_equal(index[result[hit].astype(int) - 1000], hit)
        np.testing.assert_array_equal(np.delete(result, hit), np.delete(data.reshape(-1), hit))


def test_units_of_many_buckets_are_taken_once_each(on_cuda: str) -> None:
    """A tenth of the buckets is cut, and the blocks of all others look for units meanwhile."""
    buckets, count = 70, 7 * 2 * TILED_UNIT
    problem = Edge("tiled", "add", buckets * 256, 1, count).problem
    runner = ProblemRunner(on_cuda)
    runner.add("main", problem, "tiled", {"bucket_bits": 8})
    data, _, updates = draw_operands(problem, seed=1)
    hot = RANDOM.permutation(buckets)[:7][RANDOM.integers(0, 7, count)]
    bucket = np.where(RANDOM.random(count) < 0.9, hot, RANDOM.integers(0, buckets, count))
    index = 256 * bucket + RANDOM.integers(0, 256, count)
    expected = scatter_reference(problem, data, [index], updates)
    for order in ("forward", *["mixed"] * 4):
        with in_order(order):
            np.testing.assert_array_equal(runner.run("main", data, [index], updates), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.turns(2)
def test_units_of_16_bits_are_rounded_once(on_cuda: str, dtype: str, in_place: bool) -> None:
    """Ten units have the updates of 200 places; another bucket has few, and one has none."""
    count = 10 * TILED_UNIT
    more = {"data_dtype": dtype, "in_place": in_place}
    problem = Edge("tiled", "add", 64 * 256, 1, count, more=more).problem
    runner = ProblemRunner(on_cuda)
    runner.add("main", problem, "tiled", {"bucket_bits": 8})
    data, _, updates = draw_operands(problem, seed=1)
    # So small that no sum of float16 is infinite.
    data[:] = RANDOM.integers(-16, 16, data.shape) / 16
    updates[:] = RANDOM.integers(1, 16, updates.shape) / 16
    index = np.where(RANDOM.random(count) < 0.999, RANDOM.integers(512, 712, count), 1500)
    exact = data.astype("float64").reshape(-1)
    np.add.at(exact, index, updates.astype("float64").reshape(-1))
    for order in ("forward", "mixed"):
        with in_order(order):
            result = runner.run("main", data, [index], updates, in_place=in_place)
            result = result.astype("float64").reshape(-1)
        bound = sum_error_bound(dtype, count, np.abs(exact), exact, True)
        assert (np.abs(result - exact) <= bound).all()
        untouched = np.delete(np.arange(len(result)), np.unique(index))
        np.testing.assert_array_equal(
            result[untouched], data.reshape(-1).astype("float64")[untouched]
        )


def test_a_broken_promise_of_unique_indices_harms_nothing(on_cuda: str) -> None:
    """Without units for a bucket that has more updates than places, one block takes them all."""
    count = 2 * TILED_UNIT
    problem = Edge("tiled", "add", 700, 1, count).problem
    data, indices, updates = draw_operands(problem, seed=1)
    runner = ProblemRunner(on_cuda)
    runner.add("main", replace(problem, unique=True), "tiled", {"bucket_bits": 8})
    result = runner.run("main", data, indices, updates)
    assert_same(result, scatter_reference(problem, data, indices, updates), "sum")
