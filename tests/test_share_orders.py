"""Scatters by one index share one order of their updates."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.ops.ordering import ORDER
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.passes import passes
from tvm_scatter.passes.analysis.bindings import Bindings

#: More edges than a scatter looks through in each block, so that it would sort them.
NODES, EDGES, WIDTH = 4000, 17_000, 4


def layers(count=2, symbolic=False, extents=None, rows=(1, 1), sizes=(NODES, EDGES, WIDTH)):
    """A module of graph layers: ``x = zeros.index_add(0, edges[1], x[edges[0]]) + x``.

    Each layer takes the edges apart by itself. ``rows`` says which row it scatters by.
    """
    builder = relax.BlockBuilder()
    nodes, edges = (
        (tvm.tirx.Var("nodes", "int64"), tvm.tirx.Var("edges", "int64")) if symbolic else sizes[:2]
    )
    width, extents = sizes[2], extents or (nodes, nodes)
    x = relax.Var("x", relax.TensorType([nodes, width], "float32"))
    pairs = relax.Var("pairs", relax.TensorType([2, edges], "int64"))
    emit = builder.emit

    def row(at):
        return emit(relax.op.take(pairs, relax.const(at, "int64"), axis=0))

    with builder.function("main", [x, pairs]):
        with builder.dataflow():
            state = x
            for at in range(count):
                messages = emit(relax.op.take(state, row(0), axis=0))
                zeros = emit(relax.op.zeros([extents[at % 2], width], "float32"))
                summed = emit(index_put(zeros, [row(rows[at % 2])], messages, [0], "add"))
                if extents[0] is extents[1]:
                    state = emit(relax.op.add(summed, state))
            output = builder.emit_output(relax.Tuple([state, summed]))
        builder.emit_func_output(output)
    return builder.get()


def arguments(bad=False):
    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (NODES, WIDTH)).astype("float32")
    pairs = generator.integers(0, NODES, (2, EDGES))
    if bad:
        pairs[1, 5] = NODES
    return x, pairs


def expected(x, pairs, count=2):
    for _ in range(count):
        summed = np.zeros_like(x)
        good = pairs[1] < NODES
        np.add.at(summed, pairs[1][good], x[pairs[0]][good])
        x = summed + x
    return x, summed


def rewritten(module, device, **options):
    """The function after the passes."""
    wanted = {"share_order": True, "deterministic": True, "bounds": "drop", **options}
    with tvm_scatter.options(**wanted) as current, target_of(device):
        return tvm.transform.Sequential(passes(current))(module)["main"]


def counts(function):
    """How many orders are made, and how many scatters take one."""
    values = [binding.value for binding in Bindings(function)]
    calls = [each for each in values if isinstance(each, relax.Call)]
    made = sum(getattr(each.op, "name", "") == ORDER for each in calls)
    given = sum(bool(ScatterCall.from_call(each).ordering) for each in calls if is_scatter(each))
    return made, given


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
def test_layers_share_one_order(device, symbolic, fuse):
    module = layers(3, symbolic)
    if device != "llvm":
        assert counts(rewritten(module, device, fuse=fuse)) == (1, 3)
    options = {"share_order": True, "deterministic": True, "fuse": fuse, "bounds": "drop"}
    with tvm_scatter.options(**options):
        executable = tvm.compile(module, target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    results = machine["main"](*[tvm.runtime.tensor(each, on) for each in arguments()])
    for result, wanted in zip(results, expected(*arguments(), 3), strict=True):
        np.testing.assert_array_equal(result.numpy(), wanted)


@pytest.mark.each_device
def test_a_bad_index_is_an_error_under_raise(device):
    options = {"share_order": True, "deterministic": True, "bounds": "raise"}
    with tvm_scatter.options(**options):
        executable = tvm.compile(layers(), target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    with pytest.raises(Exception, match=r"index_put: index 4000 at .*5.* of extent 4000"):
        machine["main"](*[tvm.runtime.tensor(each, on) for each in arguments(bad=True)])


def test_one_scatter_orders_its_updates_itself():
    """An order that is made apart would take as long."""
    for sizes in ((100_000, 1_000_000, 128), (40, 600, 8)):
        assert counts(rewritten(layers(1, sizes=sizes), "cuda")) == (0, 0)


def test_as_many_as_pay_for_the_order():
    """An order saves ``bucketed`` little, so four scatters pay for one."""
    large = 100_000, 1_000_000, 128
    three, four = (layers(count, sizes=large) for count in (3, 4))
    with target_of("cuda"):
        assert tvm_scatter.explain(three)[0].implementation == "bucketed"
    assert counts(rewritten(three, "cuda", deterministic=False)) == (0, 0)
    assert counts(rewritten(four, "cuda", deterministic=False)) == (1, 4)


def test_a_row_of_the_edges_is_not_copied():
    """The index that rows are read by is read where it is."""
    with target_of("cuda"):
        notes = list(map(str, tvm_scatter.explain(layers(sizes=(500, 9000, 32))).notes))
    assert sum("computes its updates itself: take, take" in each for each in notes) == 2


def test_what_orders_nothing_takes_no_order():
    few = layers(6, sizes=(5_000, 100, 128))
    with target_of("cuda"):
        assert tvm_scatter.explain(few)[0].implementation == "owned_rows"
    assert counts(rewritten(few, "cuda", deterministic=False)) == (0, 0)


def test_by_default_on_gpus():
    module = layers()
    assert counts(rewritten(module, "cuda", share_order=None)) == (1, 2)
    assert counts(rewritten(module, "llvm", share_order=None)) == (0, 0)
    assert counts(rewritten(module, "cuda", share_order=False)) == (0, 0)


def test_by_default_where_sizes_are_bounded():
    """Small sums of unknown sizes are better without an order."""
    module = layers(4, symbolic=True)
    options = {"share_order": None, "deterministic": False}
    assert counts(rewritten(module, "cuda", **options)) == (0, 0)
    for most, found in ((1 << 20, (1, 4)), (60, (0, 0))):
        bounds = {"nodes": most // 10, "edges": most}
        function = module["main"].with_attr("tir_var_upper_bound", bounds)
        bounded = tvm.IRModule({"main": function})
        assert counts(rewritten(bounded, "cuda", **options)) == found


def test_a_mask_has_at_most_all_of_its_entries():
    """Which PyTorch says of the size of what it selects, by a name of its own."""
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    class Layers(torch.nn.Module):
        def forward(self, x, edges):
            source, destination = edges[:, edges[0] != edges[1]]
            for _ in range(4):
                x = torch.zeros_like(x).index_add(0, destination, x[source])
            return x

    example = (torch.zeros(100_000, 128), torch.zeros(2, 1_000_000, dtype=torch.int64))
    module = from_exported_program(torch.export.export(Layers().eval(), example))
    notes = tvm_scatter.explain(module, target_of("cuda")).notes
    assert [each.switch for each in notes].count("share_order") == 1


def test_other_indices_and_extents_share_none():
    assert counts(rewritten(layers(2, rows=(0, 1)), "cuda")) == (0, 0)
    assert counts(rewritten(layers(2, extents=(NODES, NODES + 1)), "cuda")) == (0, 0)


def test_pairs_of_indices_have_an_order_each():
    assert counts(rewritten(layers(4, rows=(0, 1)), "cuda")) == (2, 4)


def test_a_forced_implementation_is_used():
    assert counts(rewritten(layers(), "cuda", implementation="segmented")) == (0, 0)


def test_what_explain_says():
    with tvm_scatter.options(share_order=True, deterministic=True):
        found = tvm_scatter.explain(layers(3), target_of("cuda"))
    [said] = [str(each) for each in found.notes if each.switch == "share_order"]
    assert said.startswith("share_order: main.lv") and "shares one order with lv" in said
    assert [each.implementation for each in found] == ["ordered"] * 3
    assert all("ordered=True" in str(each) for each in found)


def test_tasks_are_what_a_tuner_can_measure():
    asked = {"share_order": True, "fill": True, "fuse": True, "deterministic": True}
    with tvm_scatter.options(**asked, in_place=False):
        shared = tvm_scatter.extract_tasks(layers(3), target_of("cuda"))
    with tvm_scatter.options(deterministic=True, in_place=False):
        alone = tvm_scatter.extract_tasks(layers(3), target_of("cuda"))
    assert [str(each) for each in shared] == [str(each) for each in alone]
    assert shared[0].weight == 3
