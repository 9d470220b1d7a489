"""An index that many lines share is ordered once: where `common_index` divides its work."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import cycle, product
from random import Random
from typing import Any

import numpy as np
import pytest
from harness import ProblemRunner, assert_same, in_order, run_all, target_of
from random_problems import SPREADS, draw_operands, draw_problem
from tvm import relax

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

RANDOM = np.random.default_rng(0)
HOT = 1024
PROBLEM = ScatterProblem(
    batch=SymbolicSize(3),
    extents=(SymbolicSize(300),),
    slice=SymbolicSize(),
    count=SymbolicSize(1000),
    data_dtype="int32",
    index_dtype="int64",
    reduction="add",
)


def lines(batch: int, extent: int, count: int, width: int = 1, **more: Any) -> ScatterProblem:
    """So many batches of a line of places, with entries of one index."""
    sizes = {"batch": batch, "count": count, "slice": width}
    settings = {**{name: SymbolicSize(size) for name, size in sizes.items()}, **more}
    return replace(PROBLEM, extents=(SymbolicSize(extent),), **settings)


#: For each problem the indices to try; none for random ones.
EDGES: dict[str, tuple[ScatterProblem, tuple[Any, ...]]] = {
    # The last block has 44 of 256 places, and the lines are fewer than a thread takes.
    "blocks": (lines(3, 300, 1000), ()),
    "columns": (lines(2, 130, 500, 3), ()),
    # Two turns of lines, the second of which is full or not.
    "turns": (lines(4, 130, 500, 4), ()),
    "a turn and a half": (lines(3, 130, 500, 4), ()),
    # A place of 16 entries is one thread's, of 17 one warp's; others have none.
    "runs": (
        lines(2, 200, 33, in_place=True),
        (np.repeat([0, 1], [16, 17]), np.repeat([5, 199], [17, 16]), np.full(33, 64)),
    ),
    # A place of 1024 entries is one warp's, of 1025 a block's.
    "hot": (
        lines(2, 300, HOT + 1),
        (np.full(HOT + 1, 70), np.r_[np.full(HOT, 299), 3], np.full(HOT + 1, 256)),
    ),
    "many": (
        lines(2, 300, 3 * HOT, reduction="max", include_self=False, data_dtype="float32"),
        (
            RANDOM.integers(128, 192, 3 * HOT),
            np.sort(RANDOM.integers(-3, 310, 3 * HOT)),
            np.repeat([5, 255], [HOT + 200, 2 * HOT - 200]),
        ),
    ),
    "dropped": (lines(3, 256, 700), (np.full(700, 256), np.r_[np.full(690, 999), np.arange(10)])),
    "mean": (lines(2, 90, 400, reduction="mean", data_dtype="float32"), ()),
    "halves": (lines(5, 90, 400, data_dtype="float16"), ()),
    "doubles": (lines(5, 90, 400, data_dtype="float64", reduction="min"), ()),
    "bytes": (lines(5, 90, 400, data_dtype="int8", reduction="mul"), ()),
    "one update for each line": (lines(4, 90, 400, update_count=False), ()),
    "one line of updates": (lines(4, 90, 400, update_batch=False), ()),
}


TURNS = 2


@functools.cache
def some_edges(device: str, turn: int) -> ProblemRunner:
    """One module for a turn, since compiling is what takes the time."""
    runner = ProblemRunner(device)
    for name, (problem, _) in list(EDGES.items())[turn::TURNS]:
        runner.add(name.replace(" ", "_"), problem, "common_index", {"lines": 8})
    return runner


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.turns(TURNS)
def test_edges(on_cuda: str, name: str) -> None:
    problem, indices = EDGES[name]
    runner = some_edges(on_cuda, list(EDGES).index(name) % TURNS)
    own = name.replace(" ", "_")
    data, (drawn,), updates = draw_operands(problem, seed=1)
    for order in ("forward", "mixed"):
        for index in indices or (drawn,):
            index = index.astype(problem.index_dtype)
            with in_order(order):
                result = runner.run(own, data, [index], updates, in_place=problem.in_place)
            expected = scatter_reference(problem, data, [index], updates)
            assert_same(result, expected, f"{name}, {order}")


def draw(seed: int) -> tuple[ScatterProblem, dict[str, int]]:
    """A random problem that the implementation takes."""
    strategy, target = strategy_for("cuda"), target_of("cuda")
    assert strategy is not None
    chosen, random = strategy.implementations["common_index"], Random(seed)
    while True:
        problem, sizes = draw_problem(random, 6000)
        problem = replace(problem, index_batch=False, index_slice=False, unique=False)
        if strategy.refusal(chosen, problem, target) is None:
            return problem, sizes


def check_random(on: str, seeds: range) -> None:
    """All in one module."""
    runner, drawn = ProblemRunner(on), {f"seed{seed}": (seed, *draw(seed)) for seed in seeds}
    for name, (_, problem, sizes) in drawn.items():
        runner.add(name, problem, "common_index", sizes=sizes)
    for name, (seed, problem, sizes) in drawn.items():
        posed = problem.with_sizes(sizes)
        operands = draw_operands(posed, seed, SPREADS[seed % len(SPREADS)])
        with in_order(("forward", "mixed")[seed % 2]):
            result = runner.run(name, *operands, in_place=problem.in_place)
        assert_same(result, scatter_reference(posed, *operands), f"{name}: {problem}, {sizes}")


def test_random_problems(on_cuda: str) -> None:
    check_random(on_cuda, range(2))


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(100, 500, 20))
def test_many_random_problems(on_cuda: str, first: int) -> None:
    check_random(on_cuda, range(first, first + 20))


def emit(expression: Any) -> Any:
    return relax.BlockBuilder.current().emit(expression)


def weighted(image: Any, weight: Any, _: Any) -> Any:
    """A weight for each entry: pixels of an image, added where a flow takes them."""
    return emit(relax.op.multiply(image, weight))


def masked(image: Any, weight: Any, index: Any) -> Any:
    """What depends on the entry alone says whether a value counts."""
    kept = emit(relax.op.greater(weight, relax.const(0, str(weight.ty.dtype))))
    zeros = emit(relax.op.zeros_like(image))
    return emit(relax.op.where(kept, weighted(image, weight, index), zeros))


def gathered(image: Any, weight: Any, index: Any) -> Any:
    """The value is read from another place, which the entry names."""
    return weighted(emit(relax.op.take(image, index, 1)), weight, index)


def shifted(image: Any, weight: Any, index: Any) -> Any:
    """Two parts for each entry."""
    shift = emit(relax.op.astype(index, str(image.ty.dtype)))
    return emit(relax.op.add(weighted(image, weight, index), shift))


def doubled(image: Any, weight: Any, index: Any) -> Any:
    """No line has a part: all of a value depends on the entry alone."""
    values = emit(relax.op.multiply(weight, relax.const(2, str(weight.ty.dtype))))
    return emit(relax.op.add(values, emit(relax.op.zeros_like(image))))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.turns(2)
def test_updates_are_computed_from_parts_of_their_entries(
    on_cuda: str, every: bool, symbolic: bool
) -> None:
    """Each kind of one type, by turns; or of every type."""

    def scatter(values: Any) -> Any:
        def build(image: Any, weight: Any, index: Any) -> Any:
            zeros = emit(relax.op.zeros_like(image))
            return index_put(zeros, [index], values(image, weight, index), [1], "add")

        return build

    generator, entries = np.random.default_rng(0), 70
    index = generator.integers(0, entries, entries)
    dtypes = ("float32",) if symbolic and not every else ("float32", "float16", "int32")
    kinds = (weighted, masked, gathered, shifted, doubled)
    pairs = product(kinds, dtypes) if every else zip(kinds, cycle(dtypes), strict=False)
    calls = {
        f"{values.__name__}_{dtype}": (
            scatter(values),
            [
                generator.integers(-4, 5, (5, entries)).astype(dtype),
                generator.integers(-2, 3, entries).astype(dtype),
                index,
            ],
        )
        for values, dtype in pairs
    }
    found = run_all(calls, on_cuda, symbolic, fuse=True, implementation="common_index")
    wanted = run_all(calls, "llvm", symbolic, fuse=False)
    for name, result in found.items():
        np.testing.assert_array_equal(result, wanted[name], err_msg=name)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.turns(2)
def test_what_follows_is_computed_where_lines_are_written(on_cuda: str, width: int) -> None:
    """A bias for each place, and another type; where there is no update, of the data."""

    def build(data: Any, index: Any, updates: Any, bias: Any) -> Any:
        total = emit(index_put(data, [index], updates, [1], "add"))
        return relax.op.astype(emit(relax.op.nn.relu(emit(relax.op.add(total, bias)))), "float16")

    generator = np.random.default_rng(width)
    arrays = [
        generator.integers(-4, 5, (4, 90, width)).astype("float32"),
        generator.integers(0, 80, 300),
        generator.integers(-4, 5, (4, 300, width)).astype("float32"),
        generator.integers(-4, 5, (90, 1)).astype("float32"),
    ]
    options = {"epilogue": True, "implementation": "common_index"}
    found = run_all({"main": (build, arrays)}, on_cuda, **options)["main"]
    wanted = run_all({"main": (build, arrays)}, "llvm", epilogue=False)["main"]
    np.testing.assert_array_equal(found, wanted)
