"""Lines that share an index are turned into rows; chains of their scatters become one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
from harness import (
    Build,
    called,
    compile_all,
    compiled_with,
    device_of,
    orders,
    run,
    run_all,
    run_compiled,
    target_of,
)
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.passes import TurnLines
from tvm_scatter.passes.rows_of_lines import RowsOfLines
from tvm_scatter.problem.reductions import numpy_dtype

Array = np.ndarray[Any, Any]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RowsOfLines]]:
    """Lines are turned whatever that costs; gives what was."""
    found: list[RowsOfLines] = []
    monkeypatch.setattr(RowsOfLines, "gains", property(lambda rows: not found.append(rows)))
    yield found


def emit(expression: Any) -> Any:
    return relax.BlockBuilder.current().emit(expression)


def scattered(data: Any, index: Any, values: Any, reduction: str = "add", **more: Any) -> Any:
    return emit(index_put(data, [index], values, [1], reduction, **more))


# Literal cases: two lines of three places.

DATA = np.array([[1, 2, 3], [10, 20, 30]], "float32")
VALUES = np.array([[4, 5, 6, 7], [40, 50, 60, 70]], "float32")
INDEX = np.array([2, 0, 2, -1])


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("reduction", "options", "wanted"),
    [
        ("add", {}, [[6, 2, 20], [60, 20, 200]]),
        ("max", {}, [[5, 2, 7], [50, 20, 70]]),
        ("min", {}, [[1, 2, 3], [10, 20, 30]]),
        ("mul", {}, [[5, 2, 504], [500, 20, 5040000]]),
        ("mean", {}, [[3, 2, 5], [30, 20, 50]]),
        ("mean", {"include_self": False}, [[5, 2, 17 / 3], [50, 20, 170 / 3]]),
        ("add", {"include_self": False}, [[5, 2, 17], [50, 20, 170]]),
        ("update", {"ordered": True}, [[5, 2, 7], [50, 20, 70]]),
        # The last index is no place.
        ("add", {"wrap_negative": False}, [[6, 2, 13], [60, 20, 130]]),
    ],
)
def test_one_scatter(
    device: str,
    always: list[RowsOfLines],
    reduction: str,
    options: dict[str, Any],
    wanted: list[list[float]],
) -> None:
    def build(data: Any, index: Any, values: Any) -> Any:
        return scattered(data, index, values, reduction, **options)

    found = run(build, [DATA, INDEX, VALUES], device, bounds="drop")
    np.testing.assert_allclose(found, wanted, 1e-6)
    assert len(always) == 1


@pytest.mark.each_device
def test_a_bad_index_raises(device: str, always: list[RowsOfLines]) -> None:
    def build(data: Any, index: Any, values: Any) -> Any:
        first = scattered(data, index, emit(relax.op.multiply(values, index_weight(index))))
        return scattered(first, index, emit(relax.op.multiply(values, index_weight(index))))

    def index_weight(index: Any) -> Any:
        return emit(relax.op.astype(index, "float32"))

    run(build, [DATA, INDEX, VALUES], device, bounds="raise")
    with pytest.raises(Exception, match="index 3"):
        run(build, [DATA, np.array([0, 1, 2, 3]), VALUES], device, bounds="raise")
    assert [len(each.groups) for each in always] == [1, 1]


# Chains.

WEIGHTS = [np.array(each, "float32") for each in ([1, 2, 3, 4], [5, 6, 7, 8], [1, 0, 1, 0])]
INDICES = [np.array(each) for each in ([0, 1, 2, 0], [0, 0, 0, 1], [2, 2, 1, -1])]


def splat(image: Any, *more: Any) -> Any:
    """Zeros, to which an image times some weights is added, by some indices."""
    result = emit(relax.op.zeros([2, 3], "float32"))
    for weight, index in zip(more[::2], more[1::2], strict=True):
        result = scattered(result, index, emit(relax.op.multiply(image, weight)))
    return result


def splat_arrays() -> list[Array]:
    return [VALUES, *(each for pair in zip(WEIGHTS, INDICES, strict=True) for each in pair)]


def test_a_chain_is_one_scatter(device: str, always: list[RowsOfLines]) -> None:
    found = run(splat, splat_arrays(), device, fuse=True)
    # Line 0: 4, 10, 18, 28 at 0, 1, 2, 0; then 20, 30, 42 at 0 and 56 at 1; then 4, 0 at 2 and
    # 6 at 1, 0 at 2.
    np.testing.assert_array_equal(found, [[124, 72, 22], [1240, 720, 220]])
    [rows] = always
    assert len(rows.scatters) == 3 and len(rows.groups) == 1


@pytest.mark.turns(2)
@pytest.mark.parametrize(("first", "groups"), [("int64", 2), ("int32", 2), ("uint64", 1)])
def test_a_large_number_is_no_negative_one(
    device: str, always: list[RowsOfLines], first: str, groups: int
) -> None:
    arrays = [VALUES[:, :2], WEIGHTS[0][:2], np.array([0, 1], first)]
    arrays += [WEIGHTS[0][:2], np.array([2**64 - 1, 1], "uint64")]
    found = run(splat, arrays, device, bounds="drop")
    np.testing.assert_array_equal(found, [[4, 20, 0], [40, 200, 0]])
    with pytest.raises(Exception, match="index 18446744073709551615"):
        run(splat, arrays, device, bounds="raise")
    assert [len(each.groups) for each in always] == [groups, groups]


def module_of(build: Build, arrays: list[Array]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(f"p{at}", relax.TensorType(list(each.shape), str(each.dtype)))
        for at, each in enumerate(arrays)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(build(*parameters))
        builder.emit_func_output(output)
    return builder.get()


def scatters_in(mod: tvm.IRModule) -> list[ScatterCall]:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda each: found.append(each) if is_scatter(each) else None
    )
    return [ScatterCall.from_call(each) for each in found]


def turned(build: Build, arrays: list[Array], **options: Any) -> list[ScatterCall]:
    """The scatters after the pass."""
    with target_of("llvm"), tvm_scatter.options(**options):
        return scatters_in(TurnLines()(module_of(build, arrays)))


@pytest.mark.usefixtures("always")
def test_what_is_left_alone() -> None:
    """Scatters whose index differs from line to line, of rows, of one line, or forced."""
    arrays = [DATA, INDEX, VALUES]

    def plain(data: Any, index: Any, values: Any) -> Any:
        return scattered(data, index, values)

    assert [call.axes for call in turned(plain, arrays)] == [(0,)], "this is turned"
    assert [call.axes for call in turned(plain, arrays, implementation="sequential")] == [(1,)]

    def in_place(data: Any, index: Any, values: Any) -> Any:
        return scattered(data, index, values, in_place=True)

    assert [call.axes for call in turned(in_place, arrays)] == [(1,)]

    def of_elements(data: Any, index: Any, values: Any) -> Any:
        return emit(relax.op.scatter_elements(data, index, values, 1, "add"))

    assert [call.axes for call in turned(of_elements, [DATA, np.zeros((2, 4), int), VALUES])] == [
        (1,)
    ]
    assert [call.axes for call in turned(plain, [DATA[:1], INDEX, VALUES[:1]])] == [(1,)]
    wide = [np.stack([each] * 5, -1) for each in (DATA, VALUES)]
    assert [call.axes for call in turned(plain, [wide[0], INDEX, wide[1]])] == [(1,)]
    empty = [DATA[:, :0], INDEX[:0], VALUES[:, :0]]
    assert [call.axes for call in turned(plain, empty)] == [(1,)]


@pytest.mark.usefixtures("always")
def test_stored_updates_stay_in_memory() -> None:
    """They are only turned, so that implementations that compute none may take them."""

    def build(data: Any, index: Any, values: Any) -> Any:
        return scattered(data, index, values)

    mod = module_of(build, [DATA, INDEX, VALUES])
    with target_of("llvm"), tvm_scatter.options(fuse=True):
        [found] = tvm_scatter.explain(mod, "llvm")
    assert found.problem is not None
    assert found.problem.slice.constant == 2 and not found.problem.fused


def test_data_that_the_caller_gives_away(device: str, always: list[RowsOfLines]) -> None:
    def build(data: Any, index: Any, values: Any) -> Any:
        return scattered(data, index, values, "max")

    found = run(build, [DATA, INDEX, VALUES], device, donate=["p0"], bounds="trust")
    np.testing.assert_array_equal(found, [[5, 2, 7], [50, 20, 70]])
    assert [each.overwritten for each in always] == [True]


@pytest.mark.usefixtures("always")
def test_the_last_of_a_chain_wins() -> None:
    """One scatter of all updates says so, whether or not each of them did."""

    def build(data: Any, image: Any, *more: Any) -> Any:
        for weight, index in zip(more[::2], more[1::2], strict=True):
            values = emit(relax.op.multiply(image, weight))
            data = scattered(data, index, values, "update")
        return data

    [call] = turned(build, [DATA, *splat_arrays()])
    assert call.ordered and call.reduction == "update"


@pytest.mark.usefixtures("always")
def test_a_second_reader_ends_a_chain() -> None:
    def build(image: Any, first: Any, one: Any, second: Any, other: Any) -> Any:
        zeros = emit(relax.op.zeros([2, 3], "float32"))
        total = scattered(zeros, one, emit(relax.op.multiply(image, first)))
        whole = scattered(total, other, emit(relax.op.multiply(image, second)))
        return emit(relax.op.add(total, whole))

    assert len(turned(build, splat_arrays()[:5])) == 2
    assert len(turned(splat, splat_arrays())) == 1


def test_the_cost_decides() -> None:
    """Few lines stay lines, and so do those of a scatter that another implementation suits."""

    def build(data: Any, index: Any, values: Any) -> Any:
        return scattered(data, index, values)

    def is_turned(lines: int, places: int, entries: int) -> bool:
        shapes = ((lines, places), (entries,), (lines, entries))
        builder = relax.BlockBuilder()
        dtypes = ("float32", "int64", "float32")
        parameters = [
            relax.Var(f"p{at}", relax.TensorType(list(shape), dtype))
            for at, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        with builder.function("main", parameters):
            with builder.dataflow():
                output = builder.emit_output(build(*parameters))
            builder.emit_func_output(output)
        with target_of("cuda"):
            [call] = scatters_in(TurnLines()(builder.get()))
        return call.axes == (0,)

    assert is_turned(64, 446_464, 4 * 446_464)
    assert not is_turned(2, 100, 100), "three launches more"
    assert not is_turned(64, 10_000_000, 100), "all of the data would be turned"


def test_two_indices_and_updates_that_are_broadcast(device: str, always: list[RowsOfLines]) -> None:
    """Pixels of an image by row and column; one weight for all lines is left as it is."""

    def of_pixels(image: Any, row: Any, column: Any, values: Any) -> Any:
        return emit(index_put(image, [row, column], values, [1, 2], "add"))

    def of_one(image: Any, row: Any, column: Any, values: Any) -> Any:
        return emit(index_put(image, [row, column], values, [1, 2], "max"))

    image = np.arange(24, dtype="float32").reshape(4, 2, 3)
    row, column = np.array([[0], [1]]), np.array([[2, 1, 2]])
    values = np.arange(24, dtype="float32").reshape(4, 2, 3)
    one = np.arange(12, dtype="float32").reshape(4, 1, 3)
    calls = {
        "pixels": (of_pixels, [image, row, column, values]),
        "one": (of_one, [image, row, column, one]),
    }
    found = run_all(calls, device)
    added, greatest = image.copy(), image.copy()
    for y in range(2):
        for x in range(3):
            added[:, y, (2, 1, 2)[x]] += values[:, y, x]
            place = greatest[:, y, (2, 1, 2)[x]]
            np.maximum(place, one[:, 0, x], out=place)
    np.testing.assert_array_equal(found["pixels"], added)
    np.testing.assert_array_equal(found["one"], greatest)
    assert len(always) == 1


def test_one_module_for_images_of_all_sizes(device: str, always: list[RowsOfLines]) -> None:
    """Nine channels of an image of (h, w) pixels, which two scatters move into (h, w) places."""
    h, w = (tvm.tirx.Var(name, "int64") for name in "hw")
    shapes = {"image": ([3, 3, h, w], "float32")}
    for number in range(2):
        shapes[f"weight{number}"] = [h, w], "float32"
        shapes[f"index{number}"] = [h * w], "int64"
    parameters = {name: relax.Var(name, relax.TensorType(*each)) for name, each in shapes.items()}
    builder = relax.BlockBuilder()
    with builder.function("main", list(parameters.values())):
        with builder.dataflow():
            result = emit(relax.op.zeros([9, h * w], "float32"))
            for number in range(2):
                weighted = emit(
                    relax.op.multiply(parameters["image"], parameters[f"weight{number}"])
                )
                rows = emit(relax.op.reshape(weighted, [9, h * w]))
                result = scattered(result, parameters[f"index{number}"], rows)
            output = builder.emit_output(emit(relax.op.reshape(result, [3, 3, h, w])))
        builder.emit_func_output(output)
    compiled = compiled_with(builder.get(), device, fuse=True, bounds="drop")
    for height, width in ((0, 5), (5, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 5), (17, 30)):
        generator, pixels = np.random.default_rng(height * width), height * width
        image = generator.integers(0, 5, (3, 3, height, width)).astype("float32")
        arrays, wanted = [image], np.zeros((9, pixels), "float32")
        for _ in range(2):
            weight = generator.integers(0, 3, (height, width)).astype("float32")
            index = generator.integers(-1, pixels + 1, pixels)
            arrays += [weight, index]
            place = np.where(index < 0, index + pixels, index)
            inside = place < pixels
            for line, values in zip(wanted, (image * weight).reshape(9, pixels), strict=True):
                np.add.at(line, place[inside], values[inside])
        found = called(compiled, device, arrays)
        np.testing.assert_array_equal(found, wanted.reshape(image.shape), f"{height}, {width}")
    [rows] = always
    assert len(rows.groups) == 1


@functools.cache
def image_splat(dtype: str, dynamic: bool) -> tuple[tvm.IRModule, list[Any], Array]:
    """The model of the benchmark, its operands, and its answer in double precision."""
    torch = pytest.importorskip("torch")
    from tvm_scatter.tuning.bench.models.applications import Splat, splat
    from tvm_scatter.tuning.bench.models.ours import imported

    case = splat(getattr(torch, dtype), 1600)
    image, flow = case.inputs
    wanted = Splat()(image.double(), flow.double()).numpy()
    # NumPy has no bfloat16 that PyTorch knows of; the numbers are the same.
    arrays = [image.float().numpy().astype(numpy_dtype(dtype)), flow.numpy()]
    return imported(case, dynamic=dynamic), arrays, wanted


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("dtype", "dynamic", "bound"),
    [("float32", False, 1e-6), ("float32", True, 1e-6), ("bfloat16", False, 2e-2)],
)
def test_a_model_that_moves_pixels(
    device: str, always: list[RowsOfLines], dtype: str, dynamic: bool, bound: float
) -> None:
    mod, arrays, wanted = image_splat(dtype, dynamic)
    compiled = compiled_with(mod, device, fuse=True, bounds="drop")
    [found] = [compiled["main"](*(tvm.runtime.tensor(a, device_of(device)) for a in arrays))]
    np.testing.assert_allclose(found[0].numpy().astype("float64"), wanted, atol=bound)
    [rows] = always
    assert len(rows.groups) == 1 and len(rows.scatters) == 4


# Any chains.


@dataclass
class Program:
    """A random chain of scatters into lines, and its answer."""

    random: Random
    dtype: str
    symbolic: bool = False
    arrays: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        before = [random.choice((1, 2, 3)) for _ in range(random.choice((1, 2, 3)))]
        self.lines = prod(before)
        self.before = before
        self.places = random.choice((1, 2, 5, 40))
        self.common = random.choice(([random.choice((1, 2, 30))], [3, 4]))
        if self.symbolic:
            # No line has these sizes.
            self.places = random.choice((5, 7, 40))
            self.common = random.choice(([random.choice((6, 7, 30))], [5, 6], [7, 8]))
        self.count = prod(self.common)
        self.links = random.choice((1, 2, 3, 4))
        self.reduction = random.choice(("add", "add", "max", "min", "update"))
        self.zeros = random.random() < 0.5
        self.kinds = [random.choice(("stored", "weighted", "weighted", "masked", "each"))]
        self.kinds *= self.links
        if random.random() < 0.3:
            self.kinds = [random.choice(("stored", "weighted", "shifted")) for _ in self.kinds]
        self.read_twice = random.random() < 0.2
        self.image = self.add(*before, *self.common)
        self.data = self.add(*before, self.places)
        self.weights = [self.add(*self.common) for _ in self.kinds]
        self.of_lines = self.add(*before, *[1] * len(self.common))
        self.indices = [self.index() for _ in self.kinds]
        if random.random() < 0.3:
            self.indices = [self.indices[0]] * self.links

    def add(self, *shape: int) -> int:
        generator = np.random.default_rng(self.random.getrandbits(32))
        self.arrays.append(generator.integers(0, 4, shape).astype(numpy_dtype(self.dtype)))
        return len(self.arrays) - 1

    def index(self) -> int:
        generator = np.random.default_rng(self.random.getrandbits(32))
        dtype = self.random.choice(("int64", "int32"))
        # Some are no places, and some count from the end.
        index = generator.integers(-self.places - 1, self.places + 1, self.common)
        self.arrays.append(index.astype(dtype))
        return len(self.arrays) - 1

    def build(self, *given: Any) -> Any:
        shape = given[self.data].ty.shape
        data = emit(relax.op.zeros(shape, self.dtype)) if self.zeros else given[self.data]
        kept = []
        for number, kind in enumerate(self.kinds):
            values = given[self.image]
            weight = given[self.weights[number]]
            if kind in ("weighted", "shifted"):
                values = emit(relax.op.multiply(values, weight))
            if kind == "shifted":
                values = emit(relax.op.add(values, given[self.of_lines]))
            if kind == "masked":
                mask = emit(relax.op.greater(weight, relax.const(1, self.dtype)))
                values = emit(relax.op.where(mask, values, given[self.of_lines]))
            if kind == "each":
                values = emit(relax.op.broadcast_to(weight, given[self.image].ty.shape))
            if self.random_shape:
                values = emit(relax.op.reshape(values, given[self.image].ty.shape))
            data = emit(
                index_put(
                    data,
                    [given[self.indices[number]]],
                    values,
                    [len(self.before)],
                    self.reduction,
                    ordered=True,
                )
            )
            kept.append(data)
        if self.read_twice and self.links > 1:
            return emit(relax.op.add(data, kept[0]))
        return data

    @property
    def random_shape(self) -> bool:
        return self.count % 2 == 0

    def answer(self) -> Array:
        given = self.arrays
        data = given[self.data].reshape(self.lines, -1).copy()
        data = np.zeros_like(data) if self.zeros else data
        kept = []
        for number, kind in enumerate(self.kinds):
            values, weight = given[self.image], given[self.weights[number]]
            if kind in ("weighted", "shifted"):
                values = values * weight
            if kind == "shifted":
                values = values + given[self.of_lines]
            if kind == "masked":
                values = np.where(weight > 1, values, given[self.of_lines])
            if kind == "each":
                values = np.broadcast_to(weight, values.shape)
            values = values.astype(numpy_dtype(self.dtype)).reshape(self.lines, -1)
            for entry, place in enumerate(given[self.indices[number]].reshape(-1)):
                place = place + self.places if place < 0 else place
                if not 0 <= place < self.places:
                    continue
                old, new = data[:, place], values[:, entry]
                combine = {"add": np.add, "max": np.maximum, "min": np.minimum}
                found = combine.get(self.reduction, lambda _, new: new)(old, new)
                data[:, place] = found
            kept.append(data.copy())
        if self.read_twice and self.links > 1:
            data = data + kept[0]
        return data.reshape(*self.before, self.places).astype(numpy_dtype(self.dtype))


#: Sizes that are known at run time only. Lines have none of them.
UNKNOWN = (5, 6, 7, 8, 30, 40)


def check(seeds: range, device: str, symbolic: bool = False) -> None:
    dtypes = ("float32", "int32", "float64", "float16", "int64", "uint8", "bfloat16")
    programs = {
        f"seed{seed}": Program(Random(seed), dtypes[seed % len(dtypes)], symbolic) for seed in seeds
    }
    calls = {name: (each.build, each.arrays) for name, each in programs.items()}
    wanted = {name: each.answer() for name, each in programs.items()}
    unknown = UNKNOWN if symbolic else ()
    machine = compile_all(calls, device, unknown, bounds="drop", deterministic=True, fuse=True)
    for _ in orders(device):
        found = run_compiled(machine, calls, device)
        for name, each in programs.items():
            np.testing.assert_array_equal(found[name], wanted[name], f"{name}: {vars(each)}")


def test_random_chains(device: str, always: list[RowsOfLines]) -> None:
    check(range(12), device)
    assert {len(each.groups) for each in always} >= {1, 2}
    assert max(len(group) for each in always for group in each.groups) > 2


def test_random_chains_of_unknown_sizes(device: str, always: list[RowsOfLines]) -> None:
    check(range(4), device, symbolic=True)
    assert max(len(group) for each in always for group in each.groups) > 2


@pytest.mark.exhaustive
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("first", range(100, 1000, 50))
def test_many_random_chains(device: str, first: int) -> None:
    check(range(first, first + 50), device)
    check(range(first, first + 50), device, symbolic=True)
