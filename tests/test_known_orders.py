"""Orders of updates that are known, or of an index that ascends: nothing is sorted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from test_order import expected
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.ops.operators import index_put
from tvm_scatter.passes import passes
from tvm_scatter.selection import backend

op = relax.op


def module(build, extent, reductions=(), size=None):
    """A module that orders what ``build`` makes of a vector and of a mask, and scatters by it."""
    builder = relax.BlockBuilder()
    size = tvm.tirx.Var("n", "int64") if size is None else size
    x = relax.Var("x", relax.TensorType([size], "int64"))
    mask = relax.Var("mask", relax.TensorType([size], "bool"))
    emit = builder.emit
    with builder.function("main", [x, mask]):
        with builder.dataflow():
            index = build(emit, x, mask)
            results = []
            if not reductions:
                ordering = emit(tvm_scatter.order(index, extent, wrap_negative=False))
                results = [emit(relax.TupleGetItem(ordering, at)) for at in range(2)]
            for reduction in reductions:
                rows = emit(op.ones([*index.ty.shape.values, 8], "float32"))
                zeros = emit(op.zeros([extent, 8], "float32"))
                results.append(emit(index_put(zeros, [index], rows, [0], reduction)))
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def run(mod, device, x, mask, **options):
    with tvm_scatter.options(**{"bounds": "drop", **options}):
        executable = tvm.compile(mod, target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    results = machine["main"](tvm.runtime.tensor(x, on), tvm.runtime.tensor(mask, on))
    return [each.numpy() for each in results]


def running(emit, x, mask):
    """How many are true so far: it ascends, and its last ones may be out of bounds."""
    return emit(op.cumsum(emit(op.astype(mask, "int64")), 0))


def positions(emit, x, mask):
    """Where it is true."""
    found = emit(true_positions(mask))
    count = tvm.tirx.Var("count", "int64")
    return emit.__self__.match_cast(found, relax.TensorType([count], "int64"))


def halves(emit, x, mask):
    return emit(op.floor_divide(emit(op.arange(0, x.ty.shape.values[0], 1, "int64")), number(2)))


def fifteenths(emit, x, mask):
    return emit(op.floor_divide(emit(op.arange(0, x.ty.shape.values[0], 1, "int64")), number(15)))


def number(value):
    return relax.const(value, "int64")


def after_passes(mod, target="llvm", **options):
    with tvm_scatter.options(**{"bounds": "drop", **options}) as wanted, target_of(target):
        return tvm.transform.Sequential(passes(wanted))(mod).script()


@pytest.mark.parametrize("size", [0, 1, 50])
@pytest.mark.each_device
def test_an_ascending_index(device, size):
    if device == "cuda" and size == 1:
        pytest.skip("as on llvm")
    mask = np.random.default_rng(1).random(size) < 0.5
    x = np.zeros(size, "int64")
    for build, index in ((positions, np.flatnonzero(mask)), (halves, np.arange(size) // 2)):
        found = run(module(build, 9), device, x, mask)
        wanted = expected(index, 9, wrap=False)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("build", "ascending"),
    [
        (running, True),
        (halves, True),
        (lambda e, x, m: x, False),
        (lambda e, x, m: e(op.argsort(x, dtype="int64")), False),
        # It ascends from below zero.
        (lambda e, x, m: e(op.subtract(running(e, x, m), number(1))), False),
        (lambda e, x, m: e(op.sort(x)), False),
        (lambda e, x, m: e(op.sort(e(op.clip(x, 0, 5)))), True),
    ],
)
def test_what_is_known_to_ascend(build, ascending):
    assert ("ascending=True" in after_passes(module(build, 9))) == ascending
    assert "ascending=True" not in after_passes(module(build, 9), index_facts=False)


def test_running_sums_are_proved_where_they_are_ours(monkeypatch):
    """TVM's scan on a GPU has a race."""
    assert "ascending=True" in after_passes(module(running, 9), "cuda")
    stock = replace(backend.backend_for("cuda"), scan=None)
    monkeypatch.setitem(backend._BACKENDS, "cuda", stock)
    assert "ascending=True" not in after_passes(module(running, 9), "cuda")


def test_the_order_of_a_constant(device):
    index = np.array([3, 0, 3, 1, 0])
    mod = module(lambda e, x, m: relax.const(index, "int64"), 4)
    assert "tvm_scatter.order(" not in after_passes(mod)
    permutation, offsets = run(mod, device, np.zeros(2, "int64"), np.zeros(2, bool))
    assert permutation.tolist() == [1, 4, 3, 0, 2] and offsets.tolist() == [0, 2, 3, 3, 5]
    # A bad one is dropped or an error when the program runs.
    bad = module(lambda e, x, m: relax.const(index, "int64"), 3)
    assert "tvm_scatter.order(" in after_passes(bad)


@pytest.mark.each_device
def test_a_scatter_by_what_ascends_needs_no_sort(device):
    """One alone takes an order, which costs nothing."""
    asked = {"share_order": True, "deterministic": True}
    # More than each block looks through.
    mod = module(fifteenths, 1200, ["add"], 18_000)
    if device == "cuda":
        assert "ascending=True" in after_passes(mod, device, **asked)
        assert "ascending=True" not in after_passes(mod, device, **asked, index_facts=False)
    [found] = run(mod, device, np.zeros(18_000, "int64"), np.zeros(18_000, bool), **asked)
    np.testing.assert_array_equal(found, np.full((1200, 8), 15))
