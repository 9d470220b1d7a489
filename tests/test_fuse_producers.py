"""Scatters that compute their updates themselves give what they give without that."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tvm
from fuzzing_messages import Trial, every_one_fused
from harness import compile_all, device_of, run_compiled, target_of
from machine_code import cuda, needs_nvrtc, ptx
from random_messages import POLICIES
from special_values import KINDS, special_values
from tally import Tally
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter import strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.options import current_options
from tvm_scatter.passes import passes
from tvm_scatter.passes.analysis.bindings import Bindings
from tvm_scatter.problem.reductions import numpy_dtype

#: Programs of one module; those of a simulated device take longer to compile.
COUNT = {"llvm": 3, "cuda": 2}


def tried(device: str, first: int, count: int, tally: Tally, bounds: str | None = None) -> None:
    outcome = Trial.draw(device, range(first, first + count), bounds).compare()
    assert outcome.failures == []
    tally("scatters that computed random messages", outcome.fused)
    tally("scatters that computed what follows them", outcome.finished)


@pytest.mark.turns(3)
@pytest.mark.parametrize("bounds", POLICIES)
def test_random_messages(device, tally: Tally, bounds):
    tried(device, 20 * POLICIES.index(bounds), COUNT[device], tally, bounds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(1000, 2000, 20))
def test_many_random_messages(device, tally: Tally, first):
    """As ``python tests/fuzz_messages.py`` does for any number of programs."""
    tried(device, first, 20, tally)


def weighted_sum(nodes=30, edges=200, width=8, dtype="float32", data=None):
    """The module ``data[dst] += x[src] * weight``, and ``data`` is zeros by default."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([nodes, width], dtype))
    weight = relax.Var("weight", relax.TensorType([edges], dtype))
    src, dst = (relax.Var(name, relax.TensorType([edges], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, weight, src, dst]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            columns = builder.emit(relax.op.expand_dims(weight, 1))
            message = builder.emit(relax.op.multiply(rows, columns))
            zeros = builder.emit(relax.op.zeros([nodes, width], dtype))
            into = {"zeros": zeros, "x": x}[data or "zeros"]
            result = builder.emit_output(index_put(into, [dst], message, [0], "add"))
        builder.emit_func_output(result)
    return builder.get()


def arguments(nodes=30, edges=200, width=8):
    generator = np.random.default_rng(0)
    x = generator.integers(-4, 5, (nodes, width)).astype("float32")
    weight = generator.integers(-4, 5, edges).astype("float32")
    src, dst = generator.integers(0, nodes, (2, edges))
    return x, weight, src, dst


def compiled(module, device, **options):
    with tvm_scatter.options(**{"fuse": True, **options}):
        executable = tvm.compile(module, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def call(machine, device, *arrays):
    return machine["main"](*[tvm.runtime.tensor(a, device_of(device)) for a in arrays]).numpy()


def test_every_implementation(device, implementation):
    """Each that can compute updates does; the others read them from a tensor."""
    module = weighted_sum()
    strategy, target = strategy_for(device), target_of(device)
    with tvm_scatter.options(fuse=True):
        [explanation] = tvm_scatter.explain(module, target)
    assert explanation.problem.fused
    chosen = strategy.implementations[implementation]
    if strategy.refusal(chosen, explanation.problem, target) is not None:
        pytest.skip("it does not take this problem")
    x, weight, src, dst = arguments()
    machine = compiled(module, device, implementation=implementation)
    expected = np.zeros_like(x)
    np.add.at(expected, dst, x[src] * weight[:, None])
    np.testing.assert_array_equal(call(machine, device, x, weight, src, dst), expected)


def test_updates_are_in_no_tensor(device):
    """Nothing of (edges, width) is computed: neither gathered rows nor messages."""
    with tvm_scatter.options(fuse=True, bounds="drop"), target_of(device):
        module = tvm.transform.Sequential(passes(current_options()))(weighted_sum())
        module = relax.transform.LegalizeOps()(module)
    types = [str(binding.var.ty) for binding in Bindings(module["main"])]
    assert types
    assert not any("200, 8" in each for each in types)


def test_a_fused_module_is_printed_and_read_again(device):
    with tvm_scatter.options(fuse=True, bounds="drop"), target_of(device):
        module = tvm.transform.Sequential(passes(current_options()))(weighted_sum())
    again = tvm.script.from_source(module.script(show_meta=True))
    assert "producer" in module.script()
    tvm.ir.assert_structural_equal(again, module)


def test_off_leaves_the_module_alone(device):
    with tvm_scatter.options(fuse=False):
        explanations = tvm_scatter.explain(weighted_sum(), target_of(device))
    assert not [note for note in explanations.notes if note.switch == "fuse"]
    assert not explanations[0].problem.fused


@pytest.mark.parametrize("bad", ["src", "dst"])
@pytest.mark.each_device
def test_a_bad_index_raises(device, bad):
    x, weight, src, dst = arguments()
    {"src": src, "dst": dst}[bad][17] = 30
    machine = compiled(weighted_sum(), device, bounds="raise")
    with pytest.raises(IndexError, match="index 30 at position"):
        call(machine, device, x, weight, src, dst)


def test_a_leaf_that_is_the_data(device):
    """The scatter into what it gathers from must read what stood there before."""
    x, weight, src, dst = arguments()
    machine = compiled(weighted_sum(data="x"), device, donate=["x"])
    expected = x.copy()
    np.add.at(expected, dst, x[src] * weight[:, None])
    np.testing.assert_array_equal(call(machine, device, x, weight, src, dst), expected)


def test_a_small_message_does_not_cost_a_copy_of_the_data():
    """Twenty edges of a large donated tensor: in place is worth more."""
    module = weighted_sum(nodes=3000, edges=20, data="x")
    with tvm_scatter.options(fuse=True, donate=["x"]):
        found = tvm_scatter.explain(module, target_of("cuda"))
    assert found[0].problem.in_place
    assert not found[0].problem.fused
    assert any("would have to copy x" in str(note) for note in found.notes)


def test_what_others_read_is_kept(device):
    """A message that is returned as well is computed once."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([9, 4], "float32"))
    src = relax.Var("src", relax.TensorType([30], "int64"))
    with builder.function("main", [x, src]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            double = builder.emit(relax.op.add(rows, rows))
            result = builder.emit(index_put(x, [src], double, [0], "add"))
            output = builder.emit_output(relax.Tuple([result, rows]))
        builder.emit_func_output(output)
    [note] = notes(builder.get(), device)
    assert note == "fuse: main.lv2 computes its updates itself: add"


def test_two_scatters_compute_what_both_need(device):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([9, 4], "float32"))
    src, dst = (relax.Var(name, relax.TensorType([30], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, src, dst]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            double = builder.emit(relax.op.add(rows, rows))
            first = builder.emit(index_put(x, [dst], double, [0], "add"))
            second = builder.emit(index_put(x, [dst], rows, [0], "max"))
            output = builder.emit_output(relax.op.subtract(first, second))
        builder.emit_func_output(output)
    module = builder.get()
    found = [note.split(": ")[-1] for note in notes(module, device)]
    assert found == ["take, add", "take"]
    x, _, src, dst = arguments(9, 30, 4)
    first, second = x.copy(), x.copy()
    np.add.at(first, dst, 2 * x[src])
    np.maximum.at(second, dst, x[src])
    result = call(compiled(module, device), device, x, src, dst)
    np.testing.assert_array_equal(result, first - second)


def test_sums_are_not_fused(device):
    """A reduction is computed once, not for each update."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([30, 4, 5], "float32"))
    dst = relax.Var("dst", relax.TensorType([30], "int64"))
    with builder.function("main", [x, dst]):
        with builder.dataflow():
            sums = builder.emit(relax.op.sum(x, 2))
            zeros = builder.emit(relax.op.zeros([9, 4], "float32"))
            output = builder.emit_output(index_put(zeros, [dst], sums, [0], "add"))
        builder.emit_func_output(output)
    with tvm_scatter.options(fuse=True):
        note, *_ = tvm_scatter.explain(builder.get(), target_of(device)).notes
    assert "the elements of a row are added up apart" in str(note)


def message_of(emit, shape=(9, 4), edges=30, dtype="float32", reduction="add"):
    """The module that scatters what ``emit(builder, x, edge, src, dst)`` computes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(list(shape), dtype))
    edge = relax.Var("edge", relax.TensorType([edges, *shape[1:]], dtype))
    src, dst = (relax.Var(name, relax.TensorType([edges], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, edge, src, dst]):
        with builder.dataflow():
            message = emit(builder, x, edge, src, dst)
            zeros = builder.emit(relax.op.zeros(list(shape), dtype))
            call = index_put(zeros, [dst], message, [0], reduction, include_self=False)
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    return builder.get()


def notes(module, device):
    with tvm_scatter.options(fuse=True):
        found = tvm_scatter.explain(module, target_of(device)).notes
    return [str(note) for note in found if note.switch == "fuse"]


def test_a_function_stays_apart_on_cpus():
    """There no other rows are on their way while it is computed; a GPU has other threads."""

    def emit(builder, x, edge, src, _dst):
        gate = builder.emit(relax.op.sigmoid(edge))
        return builder.emit(relax.op.multiply(builder.emit(relax.op.take(x, src, 0)), gate))

    module = message_of(emit)
    assert notes(module, "llvm") == ["fuse: main.gv computes its updates itself: take, multiply"]
    assert notes(module, "cuda")[0].endswith("itself: sigmoid, take, multiply")


def test_what_a_cpu_makes_no_vectors_of_is_kept():
    """One weight for several columns: neighbouring columns read the same weight, or the next."""

    def emit(builder, x, edge, src, _dst):
        rows = builder.emit(relax.op.take(x, src, 0))
        return builder.emit(relax.op.multiply(rows, builder.emit(relax.op.sum(edge, 2, True))))

    module = message_of(emit, shape=(9, 4, 8))
    assert "neighbours in a row" in notes(module, "llvm")[0]
    assert "computes its updates itself" in notes(module, "cuda")[0]


def test_rows_of_several_axes_are_vectors(device):
    """Rows of heads and columns that are gathered whole."""
    module = message_of(
        lambda builder, x, _edge, src, _dst: builder.emit(relax.op.take(x, src, 0)),
        shape=(9, 4, 8),
    )
    assert "computes its updates itself: take" in notes(module, device)[0]


def _of_heads(builder, x, _edge, src, _dst):
    """Rows that are flat where they are read by index, and split in heads where they are added."""
    flat = builder.emit(relax.op.reshape(x, (9, 32)))
    rows = builder.emit(relax.op.take(flat, src, 0))
    return builder.emit(relax.op.reshape(rows, (30, 4, 8)))


def test_rows_that_are_read_in_another_shape_are_vectors():
    text = cuda(message_of(_of_heads, shape=(9, 4, 8)), fuse=True)
    [rows] = re.findall(r"load_row<count, (\d+)>\(leaf\d", text)
    assert int(rows) % 8 == 0
    # The place was split, joined and split again: that cancels out but for a row's number.
    assert len(re.findall(r"floor_(?:div|mod)\(t", text)) <= 1


def test_rows_that_are_read_in_another_shape(device):
    module = message_of(_of_heads, shape=(9, 4, 8))
    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (9, 4, 8)).astype("float32")
    edge = np.zeros((30, 4, 8), "float32")
    src, dst = generator.integers(0, 9, (2, 30))
    expected = np.zeros_like(x)
    np.add.at(expected, dst, x[src])
    found = call(compiled(module, device), device, x, edge, src, dst)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.each_device
def test_what_no_backend_can_write_is_refused_with_a_reason(device):
    """Not with an error: the operators in front of the scatter run as they do without ``fuse``."""

    def emit(builder, x, _edge, src, _dst):
        rows = builder.emit(relax.op.take(x, src, 0))
        return builder.emit(relax.op.mod(rows, relax.const(2.0, "float32")))

    with tvm_scatter.options(fuse=True), every_one_fused(device):
        found = tvm_scatter.explain(message_of(emit), target_of(device)).notes
    assert "Mod of float32 is not known to be computable anywhere" in str(found[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_means_of_real_numbers(device, dtype):
    """Against a mean in float64."""

    def emit(builder, x, edge, src, _dst):
        rows = builder.emit(relax.op.take(x, src, 0))
        return builder.emit(relax.op.multiply(rows, edge))

    generator = np.random.default_rng(0)
    x, edge = (generator.standard_normal((size, 4)).astype(dtype) for size in (9, 300))
    src, dst = generator.integers(0, 9, (2, 300))
    dst[dst == 5] = 4
    machine = compiled(message_of(emit, (9, 4), 300, dtype, "mean"), device)
    expected = np.zeros((9, 4))
    for node in set(dst):
        expected[node] = (x[src] * edge).astype("float64")[dst == node].mean(0)
    found = call(machine, device, x, edge, src, dst)
    np.testing.assert_allclose(
        found, expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6
    )


def test_rows_whose_size_is_a_product(device):
    """Their size in the scatter and in the updates may be written in another order."""
    builder = relax.BlockBuilder()
    n, e, w = (tvm.tirx.Var(name, "int64") for name in "new")
    data = relax.Var("data", relax.TensorType([n, w, 3], "float32"))
    left, right = (
        relax.Var(name, relax.TensorType([e, w, 3], "float32")) for name in ("left", "right")
    )
    dst = relax.Var("dst", relax.TensorType([e], "int64"))
    with builder.function("main", [data, left, right, dst]):
        with builder.dataflow():
            message = builder.emit(relax.op.add(left, right))
            output = builder.emit_output(index_put(data, [dst], message, [0], "add"))
        builder.emit_func_output(output)
    generator = np.random.default_rng(0)
    arrays = [generator.integers(-4, 5, (size, 5, 3)).astype("float32") for size in (7, 60, 60)]
    index = generator.integers(0, 7, 60)
    expected = arrays[0].copy()
    np.add.at(expected, index, arrays[1] + arrays[2])
    machine = compiled(builder.get(), device)
    np.testing.assert_array_equal(call(machine, device, *arrays, index), expected)


def transposed_rows():
    """Columns that are gathered and reshaped to rows, of symbolic sizes, read several times."""
    builder = relax.BlockBuilder()
    n, e, w = (tvm.tirx.Var(name, "int64") for name in ("n", "e", "w"))
    x = relax.Var("x", relax.TensorType([1, w, n], "float32"))
    src, dst = (relax.Var(name, relax.TensorType([e], "int64")) for name in ("src", "dst"))
    into = relax.Var("into", relax.TensorType([n, w, 1], "float32"))
    with builder.function("main", [into, x, src, dst]):
        with builder.dataflow():
            columns = builder.emit(relax.op.take(x, src, axis=2))
            flat = builder.emit(relax.op.reshape(columns, [e * w]))
            rows = builder.emit(relax.op.reshape(flat, [e, w, 1]))
            message = builder.emit(relax.op.maximum(rows, rows))
            result = builder.emit_output(index_put(into, [dst], message, [0], "mean"))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.each_device
def test_what_divides_often_stays_apart(device):
    """TVM compiled such a kernel for hours."""
    with every_one_fused(device) if device == "llvm" else nullcontext():
        [note] = notes(transposed_rows(), device)
    assert "where to read takes" in note and note.endswith("divisions")


def test_the_target_says_whether_scatters_compute_their_updates(device):
    """The option overrides it."""

    def fused(**options):
        with tvm_scatter.options(**options):
            [explanation] = tvm_scatter.explain(weighted_sum(), target_of(device))
        return explanation.problem.fused

    assert fused() and fused(fuse=None)
    assert fused(fuse=True) and not fused(fuse=False)


def test_updates_in_another_order_are_kept(device):
    """What scatters along several axes that are not the first ones transposes its updates."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 3, 5], "float32"))
    v = relax.Var("v", relax.TensorType([3, 4], "float32"))
    with builder.function("main", [x, v]):
        with builder.dataflow():
            diagonal = [relax.const(np.arange(4))] * 2
            turned = builder.emit(relax.op.permute_dims(v, [1, 0]))
            result = builder.emit_output(index_put(x, diagonal, turned, [0, 2], "update"))
        builder.emit_func_output(result)
    module = builder.get()
    assert "put into another order first" in notes(module, device)[0]
    arrays = np.arange(60, dtype="float32").reshape(4, 3, 5), -np.ones((3, 4), "float32")
    wanted = arrays[0].copy()
    wanted[range(4), :, range(4)] = arrays[1].T
    np.testing.assert_array_equal(call(compiled(module, device), device, *arrays), wanted)


SEVERAL_READS = {
    "the smaller extent first": lambda x, y, i, j: y[i] + x[i],
    "the smaller extent last": lambda x, y, i, j: x[i] + y[i],
    "negative numbers": lambda x, y, i, j: x.index_select(0, i - 5) + x[i - 5],
    "the second of two": lambda x, y, i, j: x[i, j] * x[i, i],
}


@pytest.mark.parametrize("several", SEVERAL_READS.values(), ids=SEVERAL_READS)
def test_each_of_several_reads_by_one_index_is_checked(several: Any) -> None:
    """4 is outside of what has 3 entries, and -5 is no number from the front."""
    torch = pytest.importorskip("torch")

    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any, i: Any, j: Any) -> Any:
            rows = several(x, y, i, j)
            return torch.zeros(2, *rows.shape[1:]).index_add(0, j, rows)

    tensors = (torch.ones(5, 4), torch.ones(3, 4), torch.tensor([0, 4, 2]), torch.tensor([0, 1, 1]))
    module = from_exported_program(torch.export.export(Sum(), tensors))
    machine = relax.VirtualMachine(tvm.compile(module, target_of("llvm")), tvm.cpu())
    with pytest.raises(IndexError, match="out of bounds"):
        machine["main"](*(tvm.runtime.tensor(each.numpy()) for each in tensors))


def test_what_doubles_often_is_refused_at_once() -> None:
    torch = pytest.importorskip("torch")

    class Doubles(torch.nn.Module):
        def forward(self, x: Any, i: Any) -> Any:
            rows = x[i]
            for _ in range(30):
                rows = rows * rows
            return torch.zeros_like(x).index_add(0, i, rows)

    tensors = torch.ones(5, 4), torch.tensor([0, 4, 2])
    module = from_exported_program(torch.export.export(Doubles(), tensors))
    begun = time.monotonic()
    tvm.compile(module, target_of("llvm"))
    assert time.monotonic() - begun < 30


def with_own_edges():
    """Edges that pass a mask and one of each node to itself, as graph networks are normalised."""
    torch = pytest.importorskip("torch")

    class Normalised(torch.nn.Module):
        def forward(self, x: Any, edges: Any) -> Any:
            kept = edges[:, edges[0] != edges[1]]
            loops = torch.arange(len(x)).repeat(2, 1)
            src, dst = torch.cat([kept, loops], 1)
            scale = torch.zeros(len(x)).index_add(0, dst, torch.ones_like(dst).float()) ** -0.5
            messages = x[src] * (scale[src] * scale[dst])[:, None]
            return torch.zeros_like(x).index_add(0, dst, messages)

    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[0, 1, 2, 3, 5, 5, 0], [1, 1, 0, 3, 4, 5, 2]])
    expected = Normalised()(x, edges).numpy()
    module = from_exported_program(torch.export.export(Normalised(), (x, edges)))
    return module, (x.numpy(), edges.numpy()), expected


def test_a_size_that_is_a_sum(device):
    """Only the run knows how many edges pass the mask, and no tensor that is read has that size."""
    module, arrays, expected = with_own_edges()
    found = relax.VirtualMachine(_fused(module, device), device_of(device))["main"](
        *(tvm.runtime.tensor(each, device_of(device)) for each in arrays)
    )
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert "computes its updates itself: " in notes(module, device)[-1]


def _fused(module, device):
    with tvm_scatter.options(fuse=True):
        return tvm.compile(module, target_of(device))


def test_a_power_is_not_computed_for_each_read(device):
    """It is computed for each node: an edge reads two of them, and there are more edges."""
    module, _, _ = with_own_edges()
    operators = notes(module, device)[-1].split(": ")[-1].split(", ")
    assert "take" in operators and "power" not in operators


def test_a_power_is_right_for_negative_numbers() -> None:
    """CUDA's fast power is not a number there. The simulated device's is, so the code tells."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([9, 8], "float32"))
    src, dst = (relax.Var(name, relax.TensorType([20], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, src, dst]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            message = builder.emit(relax.op.power(rows, relax.const(2.0, "float32")))
            zeros = builder.emit(relax.op.zeros([9, 8], "float32"))
            result = builder.emit_output(index_put(zeros, [dst], message, [0], "add"))
        builder.emit_func_output(result)
    module = builder.get()
    assert "computes its updates itself" in notes(module, "cuda")[-1]
    assert "pow" not in cuda(module)


@pytest.mark.turns(4)
@pytest.mark.parametrize("steps", [[], ["take"], ["add"], ["take", "add"], ["add", "take"]])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_updates_of_a_narrower_type(device, dtype, steps):
    """In TVM, what is computed from bfloat16 and bound to a variable would be its bits."""

    def build(x, index):
        emit = relax.BlockBuilder.current().emit
        for step in steps:
            x = emit(relax.op.take(x, index, 0) if step == "take" else relax.op.add(x, x))
        zeros = emit(relax.op.zeros([9, 4], "float32"))
        return index_put(zeros, [index], emit(relax.op.astype(x, "float32")), [0], "add")

    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (9, 4)).astype("float32")
    index = generator.integers(0, 9, 9)
    computed = x
    for step in steps:
        computed = computed[index] if step == "take" else computed + computed
    expected = np.zeros((9, 4), "float32")
    np.add.at(expected, index, computed)
    calls = {"main": (build, [x.astype(numpy_dtype(dtype)), index])}
    machine = compile_all(calls, device)
    found = run_compiled(machine, calls, device)["main"]
    np.testing.assert_array_equal(found, expected)


def _splat(lines, entries=70, together=True):
    """Lines that share an index and a weight: of two tensors together, or one after the other."""
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType([lines, entries], "float32"))
    left, right = (relax.Var(name, relax.TensorType([entries], "float32")) for name in "lr")
    index = relax.Var("index", relax.TensorType([entries], "int64"))
    with builder.function("main", [image, left, right, index]):
        with builder.dataflow():
            if together:
                values = relax.op.multiply(image, builder.emit(relax.op.multiply(left, right)))
            else:
                values = relax.op.multiply(builder.emit(relax.op.multiply(image, left)), right)
            zeros = builder.emit(relax.op.zeros_like(image))
            summed = index_put(zeros, [index], builder.emit(values), [1], "add")
            output = builder.emit_output(builder.emit(summed))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize(
    ("lines", "together", "computed"),
    [(32, True, "multiply"), (4, True, "multiply, multiply"), (32, False, "multiply, multiply")],
)
def test_what_many_lines_share_is_computed_once(lines, together, computed):
    module, generator = _splat(lines, together=together), np.random.default_rng(0)
    said = [each for each in notes(module, "cuda") if each.startswith("fuse")]
    assert [each.rpartition(": ")[2] for each in said] == [computed]
    image, left, right = (
        generator.integers(-4, 5, size).astype("float32") for size in ((lines, 70), 70, 70)
    )
    index = generator.integers(0, 70, 70)
    result = call(compiled(module, "cuda"), "cuda", image, left, right, index)
    wanted = np.zeros((lines, 70), "float32")
    np.add.at(wanted.T, index, (image * left * right).T)
    np.testing.assert_array_equal(result, wanted)


@needs_nvrtc
@pytest.mark.parametrize(("dtype", "pairs"), [("float16", "f16x2"), ("bfloat16", "bf16x2")])
@pytest.mark.turns(2)
def test_16_bit_floats_are_multiplied_two_at_a_time(dtype, pairs):
    code = ptx(cuda(weighted_sum(dtype=dtype), fuse=True, implementation="bucketed"))
    assert f"mul.rn.{pairs}" in code


def _bfloat16(values):
    return np.asarray(values, "float32").astype(numpy_dtype("bfloat16"))


@pytest.mark.parametrize("casts", [False, True])
@pytest.mark.parametrize("reduce", ["add", "mean", "max"])
@pytest.mark.turns(2)
def test_products_of_bfloat16_are_rounded_where_they_are_asked_to_be(device, reduce, casts):
    """Products of eight bits have up to sixteen, so that all of these sums are exact in float32.

    A CPU reduces products as they are. GPUs round two at a time. A cast to bfloat16 rounds.
    """
    generator = np.random.default_rng(0)
    x, weight = generator.integers(129, 256, (9, 32)), generator.integers(129, 256, (20, 1))
    src, dst = (generator.integers(0, 9, 20) for _ in range(2))
    x[3, 5] = x[4, 7] = -200
    rows, weights = _bfloat16(x), _bfloat16(weight)
    rows[5, 6] = np.nan
    if casts:
        rows, weights = (each.astype("float32") for each in (rows, weights))

    def build(x, weight, src, dst):
        emit = relax.BlockBuilder.current().emit
        message = emit(relax.op.multiply(emit(relax.op.take(x, src, 0)), weight))
        if casts:
            message = emit(relax.op.astype(message, "bfloat16"))
        zeros = emit(relax.op.zeros([9, 32], "bfloat16"))
        return index_put(zeros, [dst], message, [0], reduce, include_self=False)

    message = rows[src].astype("float32") * weights.astype("float32")
    if casts or device != "llvm":
        message = _bfloat16(message).astype("float32")
    expected = np.zeros((9, 32), "float32")
    for place in set(dst):
        of = message[dst == place]
        total = np.maximum.reduce(of) if reduce == "max" else of.sum(0, dtype="float32")
        expected[place] = total / len(of) if reduce == "mean" else total
    calls = {"main": (build, [rows, weights, src, dst])}
    with every_one_fused(device):
        compiled_calls = compile_all(calls, device)
    found = run_compiled(compiled_calls, calls, device)["main"]
    np.testing.assert_array_equal(found.astype("float32"), _bfloat16(expected).astype("float32"))


@pytest.mark.parametrize("operator", ["add", "subtract", "multiply", "divide"])
def test_messages_of_special_numbers(operator):
    """Every two of them are a message, also NaNs with and without payload, and infinities."""
    special = np.concatenate([special_values("bfloat16", kind) for kind in KINDS])
    pairs = np.stack(np.meshgrid(special, special), -1).reshape(-1, 2)
    left, right = (np.repeat(each[:, None], 8, 1) for each in pairs.T)
    everywhere = np.arange(len(pairs))

    def build(left, right, index):
        emit = relax.BlockBuilder.current().emit
        rows = [emit(relax.op.take(each, index, 0)) for each in (left, right)]
        message = emit(getattr(relax.op, operator)(*rows))
        zeros = emit(relax.op.zeros([len(pairs), 8], "bfloat16"))
        return index_put(zeros, [index], message, [0], "add")

    with np.errstate(all="ignore"):
        wanted = getattr(np, operator)(left.astype("float32"), right.astype("float32"))
    calls = {"main": (build, [left, right, everywhere])}
    found = run_compiled(compile_all(calls, "llvm"), calls, "llvm")["main"]
    # A sum that begins with zero has no negative one.
    np.testing.assert_array_equal(found.astype("float32"), _bfloat16(wanted).astype("float32") + 0)


def test_cpus_compute_messages_of_bfloat16():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([9, 32], "bfloat16"))
    src, dst = (relax.Var(name, relax.TensorType([20], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, src, dst]):
        with builder.dataflow():
            # A cast that is asked for rounds in between.
            exact = builder.emit(relax.op.astype(builder.emit(relax.op.take(x, src, 0)), "float32"))
            narrow = builder.emit(relax.op.astype(builder.emit(exact * exact), "bfloat16"))
            message = builder.emit(relax.op.astype(narrow, "float32"))
            zeros = builder.emit(relax.op.zeros([9, 32], "float32"))
            output = builder.emit_output(index_put(zeros, [dst], message, [0], "add"))
        builder.emit_func_output(output)
    module = builder.get()
    assert "computes its updates itself" in notes(module, "llvm")[-1]
    generator = np.random.default_rng(0)
    rows = _bfloat16(generator.integers(129, 256, (9, 32)))
    src, dst = (generator.integers(0, 9, 20) for _ in range(2))
    expected = np.zeros((9, 32), "float32")
    np.add.at(expected, dst, _bfloat16(rows[src].astype("float32") ** 2).astype("float32"))
    machine = relax.VirtualMachine(tvm.compile(module, target_of("llvm")), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(each) for each in (rows, src, dst)))
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("reduce", ["add", "max"])
@pytest.mark.parametrize("ordered", [False, True])
def test_where_rows_are_is_read_ahead_of_them(dtype, reduce, ordered):
    """Rows of several chunks, with weights of their own."""
    generator, edges, nodes = np.random.default_rng(0), 5000, 40
    x = generator.integers(-8, 9, (nodes, 48)).astype("float32")
    weight = generator.integers(-2, 3, (edges, 1)).astype("float32")
    src, dst = generator.integers(0, nodes, (2, edges))

    def build(x, weight, src, dst):
        emit = relax.BlockBuilder.current().emit
        message = emit(relax.op.multiply(emit(relax.op.take(x, src, 0)), weight))
        zeros = emit(relax.op.zeros([nodes, 48], dtype))
        ordering = emit(tvm_scatter.order(dst, nodes)) if ordered else None
        return index_put(zeros, [dst], message, [0], reduce, ordering=ordering)

    expected = np.zeros((nodes, 48), "float32")
    combine = np.add if reduce == "add" else np.maximum
    combine.at(expected, dst, x[src] * weight)
    kind = numpy_dtype(dtype)
    calls = {"main": (build, [x.astype(kind), weight.astype(kind), src, dst])}
    implementation = "ordered" if ordered else "sort_based"
    machine = compile_all(calls, "llvm", fuse=True, implementation=implementation)
    found = run_compiled(machine, calls, "llvm")["main"]
    np.testing.assert_array_equal(found.astype("float32"), expected.astype(kind).astype("float32"))
