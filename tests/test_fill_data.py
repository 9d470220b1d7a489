"""Scatters into zeros, or another number everywhere, that fill the tensor themselves."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from harness import device_of, run, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.passes import passes
from tvm_scatter.problem.reductions import numpy_dtype

FILLING = {
    "cuda": ("bucketed", "grouped", "segmented", "row_resident", "column_resident"),
    "llvm": ("sort_based", "partitioned"),
}
#: One of them for each kind of target.
ONE = {"cuda": "segmented", "llvm": "sort_based"}


def module(extent, count, width, number, reduction="add", symbolic=False, dtype="float32", **more):
    """The module ``full(number)[index] op= updates``."""
    builder = relax.BlockBuilder()
    rows, many = (tvm.tirx.Var(name, "int64") for name in ("rows", "many"))
    extent, count = (rows, many) if symbolic else (extent, count)
    parameters = [
        relax.Var("like", relax.TensorType([extent, width], dtype)),
        relax.Var("index", relax.TensorType([count], "int64")),
        relax.Var("updates", relax.TensorType([count, width], dtype)),
    ]
    _, index, updates = parameters
    with builder.function("main", parameters):
        with builder.dataflow():
            full = relax.op.full([extent, width], relax.const(number, dtype), dtype)
            data = builder.emit(relax.op.zeros([extent, width], dtype) if number == 0 else full)
            result = builder.emit(index_put(data, [index], updates, [0], reduction, **more))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def compiled(mod, device, **options):
    with tvm_scatter.options(fill=True, bounds="drop", **options):
        executable = tvm.compile(mod, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def check(mod, device, extent, count, width, number, combine=np.add, dtype="float32", **options):
    machine = compiled(mod, device, **options)
    check_run(machine, device, extent, count, width, number, combine, dtype)


def check_run(machine, device, extent, count, width, number, combine=np.add, dtype="float32"):
    on = device_of(device)
    generator = np.random.default_rng(extent)
    # Twice, so that memory holds other results before.
    for _ in range(2):
        like = np.zeros((extent, width), dtype)
        index = generator.integers(0, extent, count)
        updates = generator.integers(1, 5, (count, width)).astype(dtype)
        result = machine["main"](*[tvm.runtime.tensor(each, on) for each in (like, index, updates)])
        wanted = np.full((extent, width), number, dtype)
        combine.at(wanted, index, updates)
        np.testing.assert_array_equal(result.numpy(), wanted)


def filled(mod, device, **options):
    """What the pass says, and the function."""
    with tvm_scatter.options(fill=True, **options) as current, target_of(device):
        notes = [str(each) for each in tvm_scatter.explain(mod).notes]
        function = tvm.transform.Sequential(passes(current))(mod)["main"]
    return [each for each in notes if each.startswith("fill: ")], function.script()


@pytest.mark.turns(2)
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("chosen", [*FILLING["cuda"], *FILLING["llvm"]])
def test_each_that_fills(device, chosen, in_place):
    if chosen not in FILLING[device]:
        pytest.skip("it does not fill there")
    mod = module(90, 300, 8, 0)
    options = {"implementation": chosen, "in_place": in_place}
    said, text = filled(mod, device, **options)
    assert said == ["fill: main.lv1 fills its output with 0.0 itself"]
    assert "zeros" not in text
    check(mod, device, 90, 300, 8, 0, **options)


@pytest.mark.each_device
def test_zeros_in_another_shape(device):
    """As ``zeros_like(image).flatten(1)``: the image is what the result's shape is of."""
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([300], "int64"))
    updates = relax.Var("updates", relax.TensorType([300, 8], "float32"))
    like = relax.Var("like", relax.TensorType([9, 10, 8], "float32"))
    with builder.function("main", [like, index, updates]):
        with builder.dataflow():
            zeros = builder.emit(relax.op.zeros_like(like))
            data = builder.emit(relax.op.reshape(zeros, [90, 8]))
            result = builder.emit_output(index_put(data, [index], updates, [0], "add"))
        builder.emit_func_output(result)
    said, text = filled(builder.get(), device, implementation=ONE[device])
    assert said == ["fill: main.gv fills its output with 0.0 itself"]
    assert "zeros" not in text


@pytest.mark.parametrize(
    ("number", "reduction", "combine", "dtype"),
    [
        (-2.5, "add", np.add, "float32"),
        (3, "max", np.maximum, "int32"),
        (-np.inf, "max", np.maximum, "float32"),
        (1.5, "min", np.minimum, "float16"),
    ],
)
@pytest.mark.turns(2)
def test_other_numbers(device, number, reduction, combine, dtype):
    mod, chosen = module(40, 100, 8, number, reduction, dtype=dtype), ONE[device]
    assert filled(mod, device, implementation=chosen)[0]
    check(mod, device, 40, 100, 8, number, combine, dtype, implementation=chosen)


@pytest.mark.parametrize("chosen", ["grouped", "segmented"])
@pytest.mark.each_device
def test_symbolic_sizes(device, chosen):
    if device == "llvm":
        pytest.skip("it is of GPUs")
    mod = module(0, 0, 8, 0, symbolic=True)
    assert filled(mod, device, implementation=chosen)[0]
    machine = compiled(mod, device, implementation=chosen)
    check_run(machine, device, 50, 200, 8, 0)
    check_run(machine, device, 50, 0, 8, 0)


@pytest.mark.each_device
def test_by_default_where_the_sizes_decide(device):
    """What computes few updates does not fill, and what computes many does."""
    mod = module(0, 0, 8, 0, symbolic=True)
    if device == "llvm":
        assert not tvm_scatter.explain(mod, target_of(device))[0].problem.fill
        return
    [found] = tvm_scatter.explain(mod, target_of(device))
    assert found.problem.fill == "0.0"
    strategy = tvm_scatter.strategy_for("cuda")
    fills = [strategy.implementations[each.implementation].fills for each in found.choices]
    assert True in fills and False in fills
    machine = compiled(mod, device)
    check_run(machine, device, 50, 3, 8, 0)
    check_run(machine, device, 30, 2000, 8, 0)
    with tvm_scatter.options(cuda_graph=True):
        assert not tvm_scatter.explain(mod, target_of(device))[0].problem.fill


@functools.cache
def with_twos(device, dtype):
    """A machine for any number of rows, and of updates, that are added to twos."""
    return compiled(module(0, 0, 3, 2, symbolic=True, dtype=dtype), device)


@pytest.mark.turns(12)
@pytest.mark.parametrize("extent", [1, 7, 500])
@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float16", marks=pytest.mark.exhaustive), "int8", "int64"]
)
def test_what_does_not_fill_itself_where_the_sizes_decide(device, extent, dtype):
    """Also tensors whose last access is not a whole one."""
    check_run(with_twos(device, dtype), device, extent, 3, 3, 2, dtype=dtype)


def test_with_an_order(device):
    if device == "llvm":
        pytest.skip("few rows take no order there")
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([17_000], "int64"))
    updates = relax.Var("updates", relax.TensorType([17_000, 8], "float32"))
    with builder.function("main", [index, updates]):
        with builder.dataflow():
            results = []
            for reduction in ("add", "mean"):
                data = builder.emit(relax.op.zeros([60, 8], "float32"))
                call = index_put(data, [index], updates, [0], reduction, include_self=False)
                results.append(builder.emit(call))
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    options = {"fill": True, "share_order": True, "deterministic": True, "bounds": "drop"}
    with tvm_scatter.options(**options):
        found = tvm_scatter.explain(builder.get(), target_of(device))
        executable = tvm.compile(builder.get(), target_of(device))
    assert [(each.implementation, each.problem.fill) for each in found] == [("ordered", "0.0")] * 2
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    places = np.arange(17_000) % 59
    rows = (np.arange(136_000) % 101).astype("float32").reshape(17_000, 8)
    sums, means = machine["main"](*[tvm.runtime.tensor(each, on) for each in (places, rows)])
    wanted = np.zeros((60, 8), "float32")
    np.add.at(wanted, places, rows)
    np.testing.assert_array_equal(sums.numpy(), wanted)
    counts = np.maximum(np.bincount(places, minlength=60), 1)[:, None].astype("float32")
    np.testing.assert_array_equal(means.numpy(), wanted / counts)


def test_what_is_not_filled(device):
    if device == "llvm":
        pytest.skip("it names implementations of GPUs")
    atomic = {"implementation": "parallel_injective"}
    assert not filled(module(90, 300, 8, 0), device, **atomic)[0]
    assert not filled(module(90, 0, 8, 0), device, implementation="segmented")[0]
    with tvm_scatter.options(implementation="segmented", fill=False):
        assert not tvm_scatter.explain(module(90, 300, 8, 0), target_of(device))[0].problem.fill


@pytest.mark.each_device
def test_a_bad_index_is_an_error_under_raise(device):
    mod = module(5, 3, 2, 0)
    options = {} if device == "llvm" else {"implementation": "grouped"}
    with tvm_scatter.options(fill=True, bounds="raise", **options):
        executable = tvm.compile(mod, target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    arrays = np.zeros((5, 2), "float32"), np.array([0, 7, 1]), np.ones((3, 2), "float32")
    with pytest.raises(Exception, match="index_put: index 7"):
        machine["main"](*[tvm.runtime.tensor(each, on) for each in arrays])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("reduction", ["max", "min"])
@pytest.mark.turns(2)
def test_the_greatest_of_a_number_and_updates(device, dtype, reduction):
    """0.3 is no number of these types: what counts is the nearest one."""
    x = np.array([[0, 1], [1, 0], [-1, -2]]).astype(numpy_dtype(dtype))

    def build(x, index):
        block = relax.BlockBuilder.current()
        full = block.emit(relax.op.full([3, 2], relax.const(0.3, dtype), dtype))
        return index_put(full, [index], x, [0], reduction)

    options = {"fill": True, "bounds": "drop", "implementation": ONE[device]}
    found = run(build, [x, np.array([0, 0, 2])], device, **options)
    n = np.asarray(0.3).astype(numpy_dtype(dtype))
    wanted = {"max": [[1, 1], [n, n], [n, n]], "min": [[0, 0], [n, n], [-1, -2]]}[reduction]
    np.testing.assert_array_equal(found, np.array(wanted, numpy_dtype(dtype)))
