"""Scatters that compute their updates themselves give what they give without that."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from random_producers import Graph, add_function
from tally import Tally
from tvm import relax

import tvm_scatter
from tvm_scatter import strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.options import current_options
from tvm_scatter.passes import passes
from tvm_scatter.passes.analysis.bindings import Bindings

REDUCTIONS = ("add", "max", "min", "update")


def tensors(graph: Graph, device: str):
    return [tvm.runtime.tensor(array, device_of(device)) for array in graph.arrays.values()]


def run_random(device, tally, seeds, dtype="float32", bounds="drop", **options):
    """Compile a random message for each seed in one module, run it, and compare with NumPy."""
    builder = relax.BlockBuilder()
    cases = {}
    for seed in seeds:
        random = Random(seed)
        graph = Graph.draw(random, dtype, bad=bounds == "drop")
        name = f"seed{seed}"
        expected = add_function(
            builder,
            name,
            random,
            graph,
            dtype,
            "add" if "implementation" in options else random.choice(REDUCTIONS),
            symbolic=random.random() < 0.4 and "implementation" not in options,
            aliases=random.random() < 0.4,
            by_elements=random.random() < 0.3,
        )
        cases[name] = graph, expected
    module = builder.get()
    with tvm_scatter.options(fuse=True, bounds=bounds, deterministic=True, **options):
        notes = [str(each) for each in tvm_scatter.explain(module, target_of(device)).notes]
        machine = relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))
    for name, (graph, expected) in cases.items():
        result = machine[name](*tensors(graph, device)).numpy()
        np.testing.assert_array_equal(result, expected, err_msg=name)
    fused = sum("computes its updates itself" in each for each in notes)
    if dtype in strategy_for(device).backend.fuses:
        assert fused > len(cases) / 3, notes
    tally("random messages that a scatter computed", fused)


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("bounds", ["drop", "trust"])
def test_random_messages(device, tally: Tally, bounds, first):
    run_random(device, tally, range(first, first + 6), bounds=bounds)


def test_random_messages_raise(device, tally: Tally):
    run_random(device, tally, range(200, 204), bounds="raise")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_random_messages_of_other_types(device, tally: Tally, dtype):
    run_random(device, tally, range(300, 303), dtype=dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_many_random_messages(device, tally: Tally, first):
    run_random(device, tally, range(first, first + 20))


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


def test_off_leaves_the_module_alone(device):
    with tvm_scatter.options(fuse=False):
        explanations = tvm_scatter.explain(weighted_sum(), target_of(device))
    assert not [note for note in explanations.notes if note.switch == "fuse"]
    assert not explanations[0].problem.fused


@pytest.mark.parametrize("bad", ["src", "dst"])
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
    with tvm_scatter.options(fuse=True):
        [note] = tvm_scatter.explain(builder.get(), target_of(device)).notes
    assert str(note) == "fuse: main.lv2 computes its updates itself: add"


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
    with tvm_scatter.options(fuse=True):
        notes = tvm_scatter.explain(module, target_of(device)).notes
    assert [str(note).split(": ")[-1] for note in notes] == ["take, add", "take"]
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
        [note] = tvm_scatter.explain(builder.get(), target_of(device)).notes
    assert "relax.sum is not computed elementwise" in str(note)
