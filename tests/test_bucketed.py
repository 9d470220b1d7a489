"""``bucketed`` where its buckets are too large for one block, hold long lists, or are empty."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import tvm
from cuda_cases import module
from cuda_on_cpu import status
from harness import called, compiled_with, signature_of
from machine_code import cuda, needs_nvrtc, ptx
from test_costs import problem
from tvm import relax

from tvm_scatter import strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.strategy import Branch, Selection
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit
from tvm_scatter.strategies.cuda.steps import bucket_sizes
from tvm_scatter.strategies.cuda.steps.bucket_plan import BucketPlan
from tvm_scatter.strategies.cuda.steps.bucket_sizes import LARGE, SMALL, room_of
from tvm_scatter.strategies.cuda.steps.column_parts import busy_lanes
from tvm_scatter.tuning.measure.kernel import compile_selections

pytestmark = pytest.mark.skipif(not status(), reason="no simulated device")

ROWS, WIDTH, UPDATES = 700, 3, 20_000
#: One place to a bucket, a bucket that fits mostly, all places in one, and in two.
KNOBS = (
    {"bucket_bits": 0, "per_thread": 8},
    {"bucket_bits": 7, "per_thread": 1},
    {"bucket_bits": 10, "per_thread": 4},
    {"bucket_bits": 9, "per_thread": 2},
)
RANDOM = np.random.default_rng(0)


def zipf(updates: int) -> np.ndarray:
    return np.minimum(RANDOM.zipf(1.3, updates) - 1, ROWS - 1)


INDICES = {
    "uniform": RANDOM.integers(-1, ROWS + 1, UPDATES),
    "zipf": zipf(UPDATES),
    "half on one": np.where(np.arange(UPDATES) % 2, ROWS // 3, RANDOM.integers(0, ROWS, UPDATES)),
    "all on one": np.full(UPDATES, ROWS - 1),
    "ascending": np.sort(RANDOM.integers(0, ROWS, UPDATES)),
    "dropped": np.full(UPDATES, ROWS),
}


@cache
def kernels(updates: int):
    """The mean of rows by each of the knobs, which needs sums and counts alike."""
    more = {"wrap_negative": False, "bounds": "drop"}
    posed = problem("mean", "float32", (1, ROWS, updates, WIDTH), more)
    return compiled_with_knobs(posed, "bucketed", KNOBS, "sm_90")


def compiled_with_knobs(posed: ScatterProblem, name: str, every, arch: str):
    """A kernel for each of some knobs, whether or not these are among those that may be chosen."""
    target, implementation = parse_target(arch), strategy_for("cuda").implementations[name]
    chosen = [{**implementation.config(posed, target), **knobs} for knobs in every]
    selections = [Selection((Branch(implementation, config),), "forced", "") for config in chosen]
    return compile_selections(posed, signature_of(posed), selections, target)


def check(index: np.ndarray, kernel) -> None:
    data = RANDOM.integers(-8, 8, (ROWS, WIDTH)).astype("float32")
    updates = RANDOM.integers(-8, 8, (len(index), WIDTH)).astype("float32")
    kept = (index >= 0) & (index < ROWS)
    expected = data.astype("float64")
    np.add.at(expected, index[kept], updates[kept])
    expected /= 1 + np.bincount(index[kept], minlength=ROWS)[:, None]
    arrays = (data.ravel(), index, updates.ravel(), np.full(data.size, 7, "float32"))
    *operands, out = (tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays)
    workspace = RANDOM.integers(0, 255, kernel.workspace_bytes).astype("uint8")
    kernel.function(*operands, out, tvm.runtime.tensor(workspace, tvm.cuda(0)))
    np.testing.assert_allclose(out.numpy().reshape(ROWS, WIDTH), expected, rtol=1e-5)


@pytest.mark.parametrize("distribution", INDICES)
@pytest.mark.turns(2)
def test_any_skew(distribution: str) -> None:
    for kernel in kernels(UPDATES):
        check(INDICES[distribution], kernel)


@pytest.mark.parametrize("first", ["in one bucket", "in all", "in two, one of which is cut"])
def test_runs_of_words(first: str) -> None:
    """Runs that begin or end with a word of 32 entries, cross some, are long, short or empty."""
    lengths, tile = [0, 32, 64, 1, 31, 33, 512, 0, 96, 5], 512
    updates = tile * len(lengths)
    others = {"in one bucket": -1, "in all": ROWS, "in two, one of which is cut": 2 * 128}[first]
    index = RANDOM.integers(0, 128, updates)
    for at, length in enumerate(lengths):
        rest = slice(at * tile + length, (at + 1) * tile)
        index[rest] = RANDOM.integers(128, ROWS, tile - length) if others == ROWS else others
    check(index, kernels(updates)[1])


@pytest.mark.parametrize(
    ("width", "threads"),
    [
        (1, 1),
        (80, 20),
        (100, 25),
        (104, 32),
        (128, 32),
        (132, 17),
        (140, 18),
        (240, 32),
        (None, 32),
    ],
)
def test_few_threads_of_a_row_are_without_columns(width: int | None, threads: int) -> None:
    """Of columns that are read by fours: a row of 140 has 35 of these, which take two turns."""
    assert busy_lanes(width, lanes=32, vector=4) == threads


@needs_nvrtc
def test_a_room_is_as_large_as_its_launch_says() -> None:
    """Shared memory of a block that orders a bucket: a byte less, and the last is another's."""
    source = cuda(module(["rows_f32_add"]), implementation="bucketed")
    source += "using namespace tvm_scatter;\n"
    for bits, room in product((0, 8, 11), (SMALL, LARGE)):
        kind = f"EntryRoom<{bits}, {room.threads}, {room.most}>"
        source += f"static_assert(sizeof({kind}) == {room.bytes(bits, held=0)});\n"
    assert ".entry" in ptx(source)


@pytest.mark.parametrize("distribution", ["uniform", "zipf", "all on one"])
def test_large_rooms(distribution: str) -> None:
    """Two buckets of 7 000 updates, which no small room takes, or one that no room takes."""
    updates = 14_000
    check(INDICES[distribution][:updates], kernels(updates)[3])


def test_more_tiles_than_threads() -> None:
    """A bucket's runs are looked at in several rounds."""
    updates = 140_000
    small_tiles = kernels(updates)[1]
    check(zipf(updates), small_tiles)


@pytest.mark.parametrize(
    ("places", "updates", "width", "bits", "room"),
    [
        (100_000, 1_000_000, 128, 8, SMALL),
        (100_000, 6_000_000, 128, 6, SMALL),
        # Yelp, whose sums of units were as many as its edges: 2741 us, now 1820.
        (716_847, 13_954_819, 100, 8, LARGE),
        # All of ogbn-proteins: too many for buckets that a block orders.
        (132_534, 39_561_252, 8, 7, None),
        # Units of a place each add up little: 57 us, where large rooms take 70.
        (256, 1_048_576, 1, 0, None),
    ],
)
def test_rooms(places: int, updates: int, width: int, bits: int, room: object) -> None:
    posed, target = (
        problem("add", "float32", (1, places, updates, width), {}),
        parse_target("sm_90"),
    )
    bucketed = strategy_for("cuda").implementations["bucketed"]
    assert bucketed.config(posed, target)["bucket_bits"] == bits
    assert room_of(posed, bits, shared_memory_limit(target)) == room


@cache
def of_unknown_sizes(reduction: str):
    """One program for all numbers of places and updates, and of elements of a row."""
    builder = relax.BlockBuilder()
    n, e, w = (tvm.tirx.Var(name, "int64") for name in "new")
    types = [((n, w), "float32"), ((e,), "int64"), ((e, w), "float32")]
    given = [relax.Var(f"x{at}", relax.TensorType(*each)) for at, each in enumerate(types)]
    with builder.function("main", given):
        data, index, updates = given
        result = builder.emit(index_put(data, [index], updates, reduction=reduction))
        builder.emit_func_output(result)
    return compiled_with(builder.get(), "cuda", implementation="bucketed", bounds="drop")


#: Places, updates and elements of a row: a place to a bucket, the most places to one, and between;
#: with more places than updates and with fewer; and nothing of each.
UNKNOWN = [
    *((0, 0, 0), (0, 5, 3), (3, 0, 2), (2, 5, 0), (1, 1, 1), (2, 2, 2)),
    *((5, 20_000, 1), (700, 310_000, 3), (3000, 9000, 4), (2048 * 3 + 1, 500, 2), (70_000, 900, 1)),
]


@pytest.mark.parametrize("sizes", UNKNOWN)
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("reduction", ["add", pytest.param("max", marks=pytest.mark.exhaustive)])
@pytest.mark.turns(4)
def test_sizes_that_are_known_at_run_time_only(
    sizes: tuple[int, int, int], skewed: bool, reduction: str
) -> None:
    places, count, width = sizes
    random = np.random.default_rng(count)
    data = random.integers(-8, 8, (places, width)).astype("float32")
    updates = random.integers(-8, 8, (count, width)).astype("float32")
    index = random.integers(-2, places + 2, count)
    if skewed:
        index = np.where(random.random(count) < 0.7, places // 2, index)
    kept = (index >= -places) & (index < places)
    expected, combine = data.copy(), np.add if reduction == "add" else np.maximum
    combine.at(expected, index[kept], updates[kept])
    found = called(of_unknown_sizes(reduction), "cuda", [data, index, updates])
    np.testing.assert_array_equal(found, expected)


def test_more_places_than_it_takes_at_run_time_are_an_error() -> None:
    machine = of_unknown_sizes("add")
    data, index = np.zeros((2048 * 2048 + 1, 1), "float32"), np.zeros(3, "int64")
    message = "at most 2147483647 updates of 4194304 places can be put into buckets"
    with pytest.raises(Exception, match=message):
        called(machine, "cuda", [data, index, np.ones((3, 1), "float32")])


def test_no_more_buckets_than_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many updates that a block could order those of one place: each bucket has several."""
    monkeypatch.setattr(bucket_sizes, "_FILLS", (4,))
    of_unknown_sizes.cache_clear()
    places, count = 5000, 20_000
    random = np.random.default_rng(1)
    data = random.integers(-8, 8, (places, 1)).astype("float32")
    updates = random.integers(-8, 8, (count, 1)).astype("float32")
    index = random.integers(0, places, count)
    expected = data.copy()
    np.add.at(expected, index, updates)
    found = called(of_unknown_sizes("add"), "cuda", [data, index, updates])
    of_unknown_sizes.cache_clear()
    np.testing.assert_array_equal(found, expected)


@cache
def messages_of_unknown_sizes(width: int):
    """Weighted sums of rows, some of which do not exist."""
    builder = relax.BlockBuilder()
    n, m, e = (tvm.tirx.Var(name, "int64") for name in "nme")
    shapes = {"x": (m, width), "weight": (e, 1), "zeros": (n, width)}
    types = {name: (shape, "float32") for name, shape in shapes.items()}
    types |= {"source": ((e,), "int64"), "target": ((e,), "int64")}
    given = {name: relax.Var(name, relax.TensorType(*each)) for name, each in types.items()}
    x, weight, zeros, source, target = given.values()
    with builder.function("main", [*given.values()]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, source, axis=0))
            message = builder.emit(relax.op.multiply(rows, weight))
            result = builder.emit(index_put(zeros, [target], message, reduction="add"))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    wanted = {"implementation": "bucketed", "bounds": "drop", "fuse": True}
    return compiled_with(builder.get(), "cuda", **wanted)


@pytest.mark.parametrize(
    ("rows", "places", "edges"),
    [(0, 3, 5), (3, 0, 5), (4, 3, 0), (1, 1, 1), (2, 2, 2), (50, 40, 9000), (900, 700, 310_000)],
)
@pytest.mark.parametrize("width", [8, 0])
@pytest.mark.turns(2)
def test_messages_of_unknown_sizes(width: int, rows: int, places: int, edges: int) -> None:
    random = np.random.default_rng(edges)
    x = random.integers(-8, 8, (rows, width)).astype("float32")
    weight = random.integers(-2, 3, (edges, 1)).astype("float32")
    zeros = np.zeros((places, width), "float32")
    source, target = random.integers(-1, rows + 1, edges), random.integers(-1, places + 1, edges)
    source[source == -1], target[target == -1] = -rows - 1, -places - 1
    read = (source >= 0) & (source < rows)
    kept = (target >= 0) & (target < places)
    message = np.zeros((edges, width), "float32")
    message[read] = x[source[read]] * weight[read]
    expected = zeros.copy()
    np.add.at(expected, target[kept], message[kept])
    found = called(messages_of_unknown_sizes(width), "cuda", [x, weight, zeros, source, target])
    np.testing.assert_array_equal(found, expected)


def test_the_workspace_of_sizes_that_are_known_is_a_number() -> None:
    """Of a problem for all sizes: who times it allocates what some sizes need."""
    every, target = strategy_for("cuda").implementations["bucketed"], parse_target("sm_90")
    n, e = (SymbolicSize(1, (name,)) for name in "ne")
    more = {"data_dtype": "float32", "index_dtype": "int64", "reduction": "add"}
    posed = ScatterProblem(
        batch=SymbolicSize(), extents=(n,), slice=SymbolicSize(8), count=e, **more
    )
    config = every.config(posed, target)
    for places, updates in ((0, 0), (0, 400_000), (5, 3), (700, 400_000), (100_000, 5_000_000)):
        sizes = Sizes.of(posed, {"n": places, "e": updates})
        needed = every.workspace(posed, sizes, config, target)
        assert isinstance(needed, int) and needed >= 4 * (places + updates)
        plan = BucketPlan(posed, sizes, config, target)
        begins = plan.layout.offsets["entries"] - plan.layout.offsets["runs"]
        # Even without a place there is a bucket, and behind the last one its runs end.
        assert begins >= 2 * (plan.buckets + 1) * plan.tiles and plan.buckets >= 1
