"""CUDA graphs: TVM's own for parts of a call, and one graph for a whole call."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
import tvm
import tvm_ffi
from cuda_on_cpu import record, status
from harness import relax_function, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter import (
    Implementation,
    OpStrategy,
    ScatterError,
    ScatterProblem,
    current_options,
    graphed,
    options,
)
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.ops.host_numbers import on_host
from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.options import CUDA_GRAPH_VARIABLE
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.runtime import cuda_driver

GPU = tvm.cuda(0)


@pytest.fixture(params=["simulated", pytest.param("gpu", marks=pytest.mark.gpu)], autouse=True)
def any_gpu(request):
    """Every test once on the simulated device and once on a GPU."""
    if request.param == "simulated" and not status():
        pytest.skip(status().reason)
    return request.param


NODES, WIDTH, EDGES = 40, 8, 60


def inputs(seed):
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-4, 5, (NODES, WIDTH)).astype("float32"),
        rng.integers(0, NODES, EDGES),
        rng.integers(-4, 5, (EDGES, WIDTH)).astype("float32"),
    ]


def layers(count):
    """``count`` scatters, each into what the last one made."""

    def build(data, index, updates):
        emit = relax.BlockBuilder.current().emit
        for _ in range(count):
            data = emit(relax.op.nn.relu(emit(index_put(data, [index], updates, [0], "add"))))
        return data

    return build


def expected(count, data, index, updates):
    for _ in range(count):
        data = data.copy()
        np.add.at(data, index, updates)
        data = np.maximum(data, 0)
    return data


def machine(build, arrays, **changes):
    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, arrays)
    memory = changes.pop("memory_cfg", None)
    with options(**changes):
        executable = tvm.compile(builder.get(), target_of("cuda"))
    return relax.VirtualMachine(executable, GPU, memory_cfg=memory)


def on_gpu(arrays):
    return [tvm.runtime.tensor(array, GPU) for array in arrays]


# One graph for a whole call


@pytest.fixture(scope="module")
def twelve():
    if not GPU.exist:
        pytest.skip("there is no device")
    return machine(layers(12), inputs(0))


def test_replays_agree_with_calls(twelve, any_gpu):
    call = graphed(twelve, "main", inputs(0))
    for seed in range(1000 if any_gpu == "gpu" else 5):
        arrays = inputs(seed)
        result = call(*(on_gpu(arrays) if seed % 2 else arrays))
        np.testing.assert_array_equal(result.numpy(), expected(12, *arrays))
        if seed % 100 == 0:
            np.testing.assert_array_equal(twelve["main"](*on_gpu(arrays)).numpy(), result.numpy())


def test_one_launch_and_no_allocation(twelve, any_gpu):
    if any_gpu == "gpu":
        pytest.skip("counted by the simulated driver")
    call = graphed(twelve, "main", inputs(0))
    arrays = on_gpu(inputs(1))
    call(*arrays)
    gc.collect()
    with record() as log:
        call(*arrays)
    kinds = [event.kind for event in log.events if event.mode == "now"]
    assert kinds == ["copy_on_device"] * 3 + ["graph_launch"] + ["copy_on_device"]
    assert len(log.launches) >= 12
    assert all(event.mode == "replayed" for event in log.launches)


def test_results_are_not_shared(twelve):
    call = graphed(twelve, "main", inputs(0))
    first, second = call(*inputs(1)), call(*inputs(2))
    np.testing.assert_array_equal(first.numpy(), expected(12, *inputs(1)))
    np.testing.assert_array_equal(second.numpy(), expected(12, *inputs(2)))


def test_writes_to_given_tensors(twelve):
    call = graphed(twelve, "main", inputs(0))
    out = tvm.runtime.empty((NODES, WIDTH), "float32", GPU)
    assert call(*inputs(3), out=out) is out
    np.testing.assert_array_equal(out.numpy(), expected(12, *inputs(3)))
    with pytest.raises(ScatterError, match=r"out of 'main' is float32\[1\]"):
        call(*inputs(3), out=tvm.runtime.empty((1,), "float32", GPU))


def test_buffers_can_be_filled_in_place(twelve):
    call = graphed(twelve, "main", inputs(0))
    for buffer, array in zip(call.inputs, inputs(4), strict=True):
        buffer.copyfrom(array)
    call.replay()
    np.testing.assert_array_equal(call.outputs.numpy(), expected(12, *inputs(4)))


def test_memory_of_a_graph_is_its_own(twelve):
    """What the captured call freed must not become somebody else's result."""
    call = graphed(twelve, "main", inputs(0))
    kept = [twelve["main"](*on_gpu(inputs(seed))) for seed in range(8)]
    for seed in range(8):
        call(*inputs(100 + seed))
    for seed, tensor in enumerate(kept):
        np.testing.assert_array_equal(tensor.numpy(), expected(12, *inputs(seed)))


def test_runs_on_the_stream_in_force(twelve):
    call = graphed(twelve, "main", inputs(0))
    with cuda_driver.new_stream() as stream, tvm_ffi.use_raw_stream(GPU, stream):
        result = call(*inputs(5))
        GPU.sync(stream)
    np.testing.assert_array_equal(result.numpy(), expected(12, *inputs(5)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: [a[0], a[1][:-1], a[2]],
            r"input 1 of 'main' is int64\[59\] and was int64\[60\]",
        ),
        (lambda a: [a[0].astype("float64"), *a[1:]], "input 0 of 'main' is float64"),
        (lambda a: a[:2], "takes 3 inputs, not 2"),
        (lambda a: [7, *a[1:]], "input 0 of 'main' is 7 and was float32"),
    ],
)
@pytest.mark.turns(2)
def test_other_inputs_are_refused(twelve, change, message):
    call = graphed(twelve, "main", inputs(0))
    with pytest.raises(ScatterError, match=message):
        call(*change(inputs(1)))
    np.testing.assert_array_equal(call(*inputs(1)).numpy(), expected(12, *inputs(1)))


def test_tuples():
    def build(data, index, updates):
        emit = relax.BlockBuilder.current().emit
        summed = emit(index_put(data, [index], updates, [0], "add"))
        return relax.Tuple([summed, emit(relax.op.multiply(summed, summed))])

    call = graphed(machine(build, inputs(0)), "main", inputs(0))
    for seed in (1, 2):
        data, index, updates = inputs(seed)
        np.add.at(data, index, updates)
        summed, squared = call(*inputs(seed))
        np.testing.assert_array_equal(summed.numpy(), data)
        np.testing.assert_array_equal(squared.numpy(), data * data)


@pytest.mark.parametrize("changes", [{"bounds": "raise"}, {"memory_cfg": "naive"}])
@pytest.mark.exhaustive
def test_what_no_graph_can_hold_is_refused(changes):
    vm = machine(layers(1), inputs(0), **changes)
    with pytest.raises(ScatterError, match=r"'main' cannot be captured.*bounds='raise'"):
        graphed(vm, "main", inputs(0))
    # Or the next that asks, such as PyTorch after a launch, would take it for its own error.
    assert ctypes.CDLL("libcudart.so.13").cudaGetLastError() == 0
    result = vm["main"](*on_gpu(inputs(1)))
    np.testing.assert_array_equal(result.numpy(), expected(1, *inputs(1)))


def test_a_graph_within_a_graph_is_refused():
    arrays = [inputs(0)[0], inputs(0)[2]]
    vm = machine(with_constant_index(3, inputs(0)[1]), arrays, cuda_graph=True)
    with pytest.raises(ScatterError, match="'main' is compiled with cuda_graph=True"):
        graphed(vm, "main", arrays)


# What can be captured


def problems(implementation):
    """A scatter for an implementation: one that it takes."""
    return {
        "lane_bins": ((64,), (500,), (500,), "add", 0),
        "shared_bins": ((256,), (5000,), (5000,), "add", 0),
        "row_resident": ((4, 64), (4, 80), (4, 80), "add", 1),
        "gather_form": ((64, 32), (40,), (40, 32), "update", 0),
        "partitioned": ((1 << 20,), (5000,), (5000,), "add", 0),
        "tiled": ((5000,), (3000,), (3000,), "add", 0),
        "common_index": ((4, 500), (300,), (4, 300), "add", 1),
    }.get(implementation, ((64, 32), (200,), (200, 32), "add", 0))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, each in tvm_scatter.strategy_for("cuda").implementations.items()
        if each.takes_plain
    ],
)
@pytest.mark.turns(2)
def test_implementations_keep_their_promise(name):
    implementation = tvm_scatter.strategy_for("cuda").implementations[name]
    shape, index_shape, update_shape, reduction, axis = problems(name)
    rng = np.random.default_rng(1)

    def arrays():
        updates = rng.integers(-4, 5, update_shape).astype("float32")
        # A plain update of equal indices may keep any.
        index = rng.permutation(shape[axis])[: index_shape[-1]]
        if reduction != "update":
            index = rng.integers(0, shape[axis], index_shape)
        return [rng.integers(-4, 5, shape).astype("float32"), index, updates]

    def build(data, index, updates):
        if len(index_shape) == len(shape):
            return scatter_elements(data, index, updates, axis, reduction)
        return index_put(data, [index], updates, [axis], reduction)

    assert implementation.capturable
    vm = machine(build, arrays(), implementation=name, cuda_graph=True)
    call = graphed(vm, "main", arrays())
    for _ in range(2):
        given = arrays()
        eager = vm["main"](*on_gpu(given)).numpy()
        assert np.abs(eager - given[0]).max() > 0
        np.testing.assert_array_equal(call(*given).numpy(), eager)


PROBLEM = ScatterProblem(
    batch=SymbolicSize(),
    extents=(SymbolicSize(NODES),),
    slice=SymbolicSize(WIDTH),
    count=SymbolicSize(EDGES),
    data_dtype="float32",
    index_dtype="int64",
    reduction="add",
)


class Hasty(Implementation):
    name = "hasty"

    def emit(self, operands, config):
        raise NotImplementedError


class Waiting(Hasty):
    name = "waiting"
    capturable = False


def test_the_strategy_passes_over_what_cannot_be_captured(monkeypatch):
    found = {}
    for kind in ("cuda", "llvm"):
        strategy = OpStrategy(kind)
        strategy.add_implementation(Waiting(), plevel=20)
        strategy.add_implementation(Hasty(), plevel=1)
        found[kind] = lambda strategy=strategy: list(strategy.applicable(PROBLEM, None))
    assert found["cuda"]() == ["waiting", "hasty"]
    with options(cuda_graph=True):
        assert found["cuda"]() == ["hasty"]
        assert found["llvm"]() == ["waiting", "hasty"]
    monkeypatch.setenv(CUDA_GRAPH_VARIABLE, "1")
    assert found["cuda"]() == ["hasty"]
    with options(cuda_graph=False):
        assert found["cuda"]() == ["waiting", "hasty"]


@pytest.mark.parametrize(("text", "on"), [("1", True), ("0", False), ("", False)])
def test_the_environment_says_0_or_1(monkeypatch, text, on):
    monkeypatch.setenv(CUDA_GRAPH_VARIABLE, text)
    assert current_options().captures == on


def test_the_environment_says_something_else(monkeypatch):
    monkeypatch.setenv(CUDA_GRAPH_VARIABLE, "yes")
    with pytest.raises(ScatterError, match="TVM_SCATTER_CUDA_GRAPH=yes must be 0 or 1"):
        assert not current_options().captures


# TVM's graphs


def with_constant_index(count, index):
    """A chain in which the index is part of the module, as TVM's own capture needs it."""

    def build(data, updates):
        emit = relax.BlockBuilder.current().emit
        updates = emit(relax.op.add(updates, updates))
        for _ in range(count):
            scattered = index_put(data, [relax.const(index, "int64")], updates, [0], "add")
            data = emit(relax.op.nn.relu(emit(scattered)))
        return data

    return build


@pytest.mark.parametrize("switch", ["option", "environment", "pipeline"])
@pytest.mark.turns(3)
def test_tvms_graphs_hold_scatters(any_gpu, monkeypatch, switch):
    arrays = [inputs(0)[0], inputs(0)[2]]
    index = inputs(0)[1]
    builder = relax.BlockBuilder()
    relax_function(builder, "main", with_constant_index(10, index), arrays)
    target = target_of("cuda")
    if switch == "environment":
        monkeypatch.setenv(CUDA_GRAPH_VARIABLE, "1")
    chosen = {"cuda_graph": True} if switch == "option" else {}
    pipeline = tvm_scatter.pipeline(target, cuda_graph=True) if switch == "pipeline" else "default"
    with options(**chosen):
        executable = tvm.compile(builder.get(), target, relax_pipeline=pipeline)
    vm = relax.VirtualMachine(executable, GPU)
    for seed in range(4):
        data, _, updates = inputs(seed)
        given = on_gpu([data, updates])
        if any_gpu == "gpu":
            result = vm["main"](*given)
        else:
            with record() as log:
                result = vm["main"](*given)
            if seed > 0:
                assert log.count("graph_launch") >= 1
                replayed = [event.name for event in log.launches if event.mode == "replayed"]
                assert sum("scatter" in name for name in replayed) >= 8
        np.testing.assert_array_equal(result.numpy(), expected(10, data, index, 2 * updates))


def test_the_check_of_indices_stays_outside():
    """A check that ran once, at the capture, would let later bad indices through."""
    vm = machine(layers(3), inputs(0), cuda_graph=True, bounds="raise")
    for seed in range(3):
        result = vm["main"](*on_gpu(inputs(seed)))
        np.testing.assert_array_equal(result.numpy(), expected(3, *inputs(seed)))
    data, index, updates = inputs(4)
    index[7] = NODES
    with pytest.raises(Exception, match=f"index {NODES} at position"):
        vm["main"](*on_gpu([data, index, updates]))


def test_cpus_have_no_graphs():
    builder = relax.BlockBuilder()
    relax_function(builder, "main", layers(2), inputs(0))
    with options(cuda_graph=True):
        executable = tvm.compile(builder.get(), tvm.target.Target("llvm"))
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](
        *map(tvm.runtime.tensor, inputs(1))
    )
    np.testing.assert_array_equal(result.numpy(), expected(2, *inputs(1)))
    assert "cuda_graph" not in executable.as_text()


# Nothing waits between our launches

#: What makes the host wait for the device, or the device for itself.
WAITS = (
    "Synchronize",
    "cudaMalloc",
    "cudaFree",
    "cuMemAlloc",
    "cuMemFree",
    "cudaMemcpy",
    "cuMemcpy",
)


def test_nothing_waits_within_a_call(twelve, any_gpu):
    arrays = on_gpu(inputs(1))
    for _ in range(3):  # until the pool holds what a call takes
        twelve["main"](*arrays)
    if any_gpu == "gpu":
        calls = driver_calls(lambda: twelve["main"](*arrays))
        assert sum("LaunchKernel" in name for name in calls) >= 12
        assert not [name for name in calls if name.startswith(WAITS) or "Synchronize" in name]
        calls = driver_calls(lambda: twelve["main"](*arrays).numpy())
        assert any("Synchronize" in name for name in calls), "the count sees what waits"
        return
    with record() as log:
        twelve["main"](*arrays)
    assert {event.kind for event in log.events} == {"launch"}
    assert len(log.launches) >= 12


def driver_calls(work):
    """Names of the calls to CUDA's runtime and driver that ``work`` makes, once it is warm."""
    torch = pytest.importorskip("torch")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.init()
    for _ in range(3):
        work()
    GPU.sync()
    with torch.profiler.profile(activities=activities) as profile:
        kept = work()
        with torch.profiler.record_function("end of the call"):
            pass
        GPU.sync()
    del kept
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    (end,) = [
        event
        for event in events
        if event.name == "end of the call" and event.device_type.name == "CPU"
    ]
    return [
        event.name
        for event in events
        if event.name.startswith("cu") and event.time_range.start < end.time_range.start
    ]


def test_functions_that_are_called_have_memory_of_their_own():
    """TVM gives what it captures of a module one memory, whichever function it is in."""
    builder = relax.BlockBuilder()
    relax_function(builder, "inner", layers(3), inputs(0))
    inner = builder.get().get_global_var("inner")

    def build(data, index, updates):
        emit = relax.BlockBuilder.current().emit
        before = emit(relax.op.nn.relu(emit(relax.op.negative(data))))
        kept = emit(index_put(before, [index], updates, [0], "add"))
        called = emit(relax.Call(inner, [before, index, updates]))
        return relax.op.subtract(called, emit(relax.op.nn.relu(kept)))

    relax_function(builder, "main", build, inputs(0))
    with options(cuda_graph=True):
        executable = tvm.compile(builder.get(), target_of("cuda"))
    call = relax.VirtualMachine(executable, GPU)["main"]
    for seed in range(3):
        data, *rest = inputs(seed)
        before = np.maximum(-data, 0)
        wanted = expected(3, before, *rest) - expected(1, before, *rest)
        np.testing.assert_array_equal(call(*on_gpu([data, *rest])).numpy(), wanted)


# Sizes that are read back

MASKS = [np.arange(20) % step == 0 for step in (3, 2, 21)]


def chosen(data, mask):
    """Rows of doubled data: launches that a graph can hold, around one that it cannot."""
    emit = relax.BlockBuilder.current().emit
    doubled = emit(relax.op.add(emit(relax.op.add(data, data)), relax.const(1.0, "float32")))
    listed = relax.BlockBuilder.current().match_cast(
        emit(true_positions(mask)), relax.TensorType([tvm.tirx.Var("count", "int64")], "int64")
    )
    return relax.op.take(doubled, listed, 0)


def test_a_size_is_read_in_every_call():
    data = np.arange(40, dtype="float32").reshape(20, 2)
    vm = machine(chosen, [data, MASKS[0]], cuda_graph=True)
    for mask in MASKS * 2:
        np.testing.assert_array_equal(vm["main"](*on_gpu([data, mask])).numpy(), 2 * data[mask] + 1)


def rows_of_zeros(number):
    """As many rows as twice a number."""
    builder = relax.BlockBuilder.current()
    twice = builder.emit(on_host(builder.emit(relax.op.add(number, number))))
    rows = tvm.tirx.Var("rows", "int64")
    builder.match_cast(builder.emit(relax.op.tensor_to_shape(twice)), relax.ShapeType([rows]))
    return relax.op.zeros([rows, 2], "float32")


def test_a_number_is_read_in_every_call():
    for changes in ({}, {"cuda_graph": True}):
        vm = machine(rows_of_zeros, [np.array([1])], **changes)
        for number in (3, 0, 1, 3):
            assert vm["main"](*on_gpu([np.array([number])])).shape == (2 * number, 2)


def test_a_number_that_is_read_cannot_be_captured():
    with pytest.raises(ScatterError, match="'main' cannot be captured"):
        graphed(machine(rows_of_zeros, [np.array([1])]), "main", [np.array([1])])


def test_a_size_that_is_read_cannot_be_captured():
    data = np.arange(40, dtype="float32").reshape(20, 2)
    vm = machine(chosen, [data, MASKS[0]])
    with pytest.raises(ScatterError, match="'main' cannot be captured"):
        graphed(vm, "main", [data, MASKS[0]])


def test_sizes_are_read_from_the_stream_in_force():
    """On a stream for which copies on the default stream do not wait, as PyTorch's are."""
    data = np.arange(40, dtype="float32").reshape(20, 2)
    vm = machine(chosen, [data, MASKS[0]])
    driver, stream, does_not_block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), 1
    assert driver.cuStreamCreate(ctypes.byref(stream), does_not_block) == 0
    with tvm_ffi.use_raw_stream(GPU, stream.value or 0):
        for mask in MASKS:
            result = vm["main"](*on_gpu([data, mask]))
            GPU.sync(stream.value or 0)
            np.testing.assert_array_equal(result.numpy(), 2 * data[mask] + 1)
    driver.cuStreamDestroy_v2(stream)
