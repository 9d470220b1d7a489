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


@pytest.mark.parametrize("form", ["bucketed", "ordered"])
@pytest.mark.parametrize(("nodes", "rows_as_well"), [(1000, True), (300_000, False)])
def test_lists_are_and_rows_if_they_are_few(form, nodes, rows_as_well):
    """A kernel that begins early gets less of the L1 cache, which matters if it runs for long."""
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
    routines = [each.split("\n}")[0] for each in re.split(r"void scatter_[0-9a-f]+\(", source)[1:]]
    writes = [bool(re.search(r"(write_rows|sum_updates)<P", each)) for each in routines]
    waits = ["begin_overlapped();" in each for each in routines]
    assert sum(writes) == 1 and len(routines) >= 3
    assert waits == [rows_as_well or not each for each in writes]


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
