"""A kernel that is launched while the one before it ends waits for it; no other is launched so."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from cuda_on_cpu import record, status
from harness import device_of, target_of
from machine_code import cuda, needs_nvrtc, ptx
from test_order import check, expected
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.cuda.ordering import forms_from

simulated = pytest.mark.skipif(not status(), reason="what a real GPU is told is not recorded")
INDEX = np.random.default_rng(0).integers(-30, 30, 500)


def module():
    """An order, an elementwise function that is TVM's own, and a scatter."""
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([500], "int64"))
    rows = relax.Var("rows", relax.TensorType([500, 8], "float32"))
    with builder.function("main", [index, rows]):
        with builder.dataflow():
            ordering = builder.emit(tvm_scatter.order(index, 30))
            doubled = builder.emit(relax.op.add(rows, rows))
            zeros = builder.emit(relax.op.zeros([30, 8], "float32"))
            total = builder.emit(index_put(zeros, [index], doubled, [0], "add"))
            parts = [builder.emit(relax.TupleGetItem(ordering, at)) for at in range(2)]
            output = builder.emit_output(relax.Tuple([*parts, total, doubled]))
        builder.emit_func_output(output)
    return builder.get()


def ran(**options):
    """The results, and the launches: is each overlapped?"""
    with forms_from("buckets"), tvm_scatter.options(fuse=False, bounds="drop", **options):
        executable = tvm.compile(module(), target_of("cuda"))
    on = device_of("cuda")
    machine = relax.VirtualMachine(executable, on)
    rows = np.ones((500, 8), "float32")
    with record() as log:
        results = machine["main"](*(tvm.runtime.tensor(each, on) for each in (INDEX, rows)))
    permutation, offsets, total, _ = (each.numpy() for each in results)
    check((permutation, offsets), expected(INDEX, 30))
    np.testing.assert_array_equal(total[:, 0], 2 * np.bincount(INDEX % 30, minlength=30))
    return {each.name: each.overlapped for each in log.launches}


@simulated
def test_kernels_of_ours_are():
    launches = ran(overlap_launches=True)
    ours = {name for name in launches if re.match("order|scatter", name)}
    assert len(ours) > 2 and len(launches) > len(ours)
    assert launches == {name: name in ours for name in launches}


@simulated
def test_short_ones_and_orders_are_by_default():
    launches = ran(implementation="parallel_injective")
    # Its data are copied first, and that is not.
    _, added = (name for name in launches if name.startswith("scatter"))
    orders = [name for name in launches if name.startswith("order")]
    assert orders and [name for name in launches if launches[name]] == [*orders, added]


def routines_of(form, nodes):
    """The source of each routine of a sum of 2 * nodes rows."""
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([2 * nodes], "int64"))
    data = relax.Var("data", relax.TensorType([nodes, 128], "float32"))
    rows = relax.Var("rows", relax.TensorType([2 * nodes, 128], "float32"))
    with builder.function("main", [data, index, rows]):
        with builder.dataflow():
            ordering = None
            if form == "ordered":
                ordering = builder.emit(tvm_scatter.order(index, nodes))
            summed = index_put(data, [index], rows, [0], "add", ordering=ordering)
            output = builder.emit_output(summed)
        builder.emit_func_output(output)
    source = cuda(builder.get(), implementation=form)
    return [each.split("\n}")[0] for each in re.split(r"void scatter_[0-9a-f]+\(", source)[1:]]


@pytest.mark.parametrize(("nodes", "rows_as_well"), [(1000, True), (300_000, False)])
def test_lists_are_and_rows_if_they_are_few(nodes, rows_as_well):
    """A kernel that begins early gets less of the L1 cache, which matters if it runs for long."""
    routines = routines_of("ordered", nodes)
    writes = ["sum_updates<P" in each for each in routines]
    waits = ["begin_overlapped();" in each for each in routines]
    assert sum(writes) == 1 and len(routines) >= 3
    assert waits == [rows_as_well or not each for each in writes]


@pytest.mark.parametrize("nodes", [1000, 300_000])
def test_rows_without_a_sum_do_not_wait_for_sums(nodes):
    def begins(step):
        [routine] = [each for each in routines_of("bucketed", nodes) if f"{step}<P" in each]
        return re.search(r"begin_\w+", routine).group()

    assert begins("order_tile") == begins("list_bucket") == "begin_overlapped"
    assert begins("sum_slots") == "begin_overlapped_in_order"
    assert begins("write_rows") == "begin_overlapped_early"


@needs_nvrtc
def test_what_begins_early_finds_lists_complete():
    """Who sums lets the next kernel begin when it has waited itself; that one waits for sums."""
    source = cuda(module(), implementation="bucketed", overlap_launches=True)
    kernels = re.findall(r"\.entry scatter\w*\([^{]*\{(.*?)\n\}", ptx(source), re.DOTALL)
    sums, rows = kernels[-2:]
    first, second = re.findall(r"griddepcontrol\.(\w+)", sums)
    assert (first, second) == ("wait", "launch_dependents")
    assert not re.search(r"\b(ld|st|red|atom)\.(?!param)", sums.split("griddepcontrol")[0])
    # One block waits in any case, so that this does not end before who sums.
    assert re.findall(r"griddepcontrol\.(\w+)", rows)[:2] == ["launch_dependents", "wait"]
    assert rows.count("griddepcontrol.wait") > 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_with_a_sum_do_wait_for_it(dtype):
    """One call after the other, each with another index: nothing is of the call before."""
    torch = pytest.importorskip("torch")
    nodes, edges, width, calls = 20_000, 60_000, 128, 24
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([edges], "int64"))
    rows = relax.Var("rows", relax.TensorType([edges, width], dtype))
    with builder.function("main", [index, rows]):
        with builder.dataflow():
            zeros = builder.emit(relax.op.zeros([nodes, width], dtype))
            greatest = index_put(zeros, [index], rows, [0], "max", include_self=False)
            output = builder.emit_output(greatest)
        builder.emit_func_output(output)
    with tvm_scatter.options(implementation="bucketed"):
        executable = tvm.compile(builder.get(), target_of("gpu"))
    main = relax.VirtualMachine(executable, device_of("gpu"))["main"]
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(edges, width, generator=generator).to(getattr(torch, dtype)).cuda()
    places = []
    for call in range(calls):
        # Half of the updates go to a few places, which differ from call to call.
        hot = torch.randint(0, nodes, (5,), generator=generator)
        even = torch.randint(0, nodes, (edges // 2,), generator=generator)
        few = hot[torch.randint(0, 1 + call % 5, (edges - edges // 2,), generator=generator)]
        places.append(torch.cat([even, few])[torch.randperm(edges, generator=generator)].cuda())
    torch.cuda.synchronize()
    given = tvm.runtime.from_dlpack(values)
    results = [main(tvm.runtime.from_dlpack(each), given) for each in places]
    device_of("gpu").sync()
    for place, result in zip(places, results, strict=True):
        wanted = torch.zeros(nodes, width, device="cuda").scatter_reduce(
            0, place[:, None].expand(-1, width), values.float(), "amax", include_self=False
        )
        assert torch.equal(torch.from_dlpack(result).float(), wanted)


@simulated
@pytest.mark.parametrize("options", [{"overlap_launches": False}, {"cuda_graph": True}], ids=str)
def test_none_is_if_switched_off_or_captured(options):
    assert not any(ran(implementation="parallel_injective", **options).values())


def test_long_ones_are_not():
    """A GPU has some 270 000 threads at a time, and these are more."""
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([100_000], "int64"))
    data, rows = (relax.Var(n, relax.TensorType([100_000, 64], "float32")) for n in "xy")
    with builder.function("main", [data, index, rows]):
        with builder.dataflow():
            output = builder.emit_output(index_put(data, [index], rows, [0], "add"))
        builder.emit_func_output(output)
    source = cuda(builder.get(), implementation="parallel_injective")
    assert "parallel<P" in source and "begin_overlapped();\n" not in source


@needs_nvrtc
def test_each_waits_before_it_does_anything():
    with forms_from("buckets"):
        source = cuda(module(), overlap_launches=True)
    kernels = re.findall(r"\.entry (order|scatter)\w*\([^{]*\{(.*?)\n\}", ptx(source), re.DOTALL)
    assert len(kernels) > 2
    for _, body in kernels:
        assert body.count("griddepcontrol.wait") == 1
        before = body.split("griddepcontrol.wait")[0]
        assert not re.search(r"\b(ld|st|red|atom)\.(?!param)", before)


@pytest.mark.parametrize(("arch", "overlaps"), [("sm_80", False), ("sm_90", True)])
def test_only_where_a_kernel_can_wait(arch, overlaps):
    assert ("begin_overlapped();" in cuda(module(), arch, overlap_launches=True)) == overlaps
