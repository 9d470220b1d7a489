"""``tvm_scatter.order``: the updates in the order of their destinations."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from harness import device_of, orders, target_of
from tvm import relax

import tvm_scatter


def compiled(shape, dtype, extent, device, symbolic=False, **attributes):
    """A machine whose ``main`` orders an index of this shape."""
    builder = relax.BlockBuilder()
    shape = [tvm.tirx.Var(f"d{at}", "int64") if symbolic else n for at, n in enumerate(shape)]
    parameter = relax.Var("index", relax.TensorType(shape, dtype))
    parameters, size = [parameter], extent
    if symbolic:
        size = tvm.tirx.Var("extent", "int64")
        parameters.append(relax.Var("room", relax.TensorType([size], "int8")))
    options = {key: attributes.pop(key) for key in ("bounds",) if key in attributes}
    with builder.function("main", parameters):
        with builder.dataflow():
            made = builder.emit(tvm_scatter.order(parameter, size, **attributes))
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    with tvm_scatter.options(**options):
        executable = tvm.compile(builder.get(), target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


@functools.cache
def of_any_size(dimensions, dtype, device, **attributes):
    """The same machine for all sizes."""
    return compiled([None] * dimensions, dtype, None, device, True, **attributes)


def run(machine, index, extent, device, symbolic=False):
    """The permutation and the offsets, which are the same in each order of threads."""
    room, on = [np.zeros(extent, "int8")] if symbolic else [], device_of(device)
    arrays = [tvm.runtime.tensor(each, on) for each in (index, *room)]
    results = []
    for _ in orders(device):
        results.append([each.numpy() for each in machine["main"](*arrays)])
    for each in results[1:]:
        np.testing.assert_array_equal(each[0], results[0][0])
        np.testing.assert_array_equal(each[1], results[0][1])
    return results[0]


def ordered(index, extent, device, symbolic=False, **attributes):
    """The permutation and the offsets, by the operator."""
    index = np.asarray(index)
    if symbolic:
        machine = of_any_size(index.ndim, str(index.dtype), device, **attributes)
    else:
        machine = compiled(index.shape, str(index.dtype), extent, device, **attributes)
    return run(machine, index, extent, device, symbolic)


def expected(index, extent, wrap=True):
    """The same by NumPy; bad indices come last."""
    index = np.asarray(index).reshape(-1).astype("int64")
    index = np.where((index < 0) & wrap, index + extent, index)
    index = np.where((index < 0) | (index >= extent), extent, index)
    counts = np.bincount(index, minlength=extent + 1)[:extent]
    return np.argsort(index, kind="stable"), np.concatenate([[0], np.cumsum(counts)])


def check(found, wanted):
    permutation, offsets = found
    assert permutation.dtype == offsets.dtype == np.int32
    np.testing.assert_array_equal(permutation, wanted[0])
    np.testing.assert_array_equal(offsets, wanted[1])


def test_by_eye(device):
    permutation, offsets = ordered(np.array([2, 0, 2, -4, 9, 2]), 4, device, bounds="drop")
    # Destination 0 has updates 1 and 3, because -4 is 0 counted from the end; 1 and 3 have none;
    # 2 has 0, 2 and 5; and update 4 has no destination.
    assert permutation.tolist() == [1, 3, 0, 2, 5, 4]
    assert offsets.tolist() == [0, 2, 2, 5, 5]


def test_without_wrapping(device):
    permutation, offsets = ordered(
        np.array([1, -1, 0]), 2, device, bounds="drop", wrap_negative=False
    )
    assert permutation.tolist() == [2, 0, 1]
    assert offsets.tolist() == [0, 1, 2]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("count", "extent"), [(0, 3), (0, 0), (1, 1), (2, 1), (2, 2), (1, 700), (5000, 3), (700, 5000)]
)
def test_sizes(device, count, extent, symbolic):
    index = np.random.default_rng(count).integers(0, max(extent, 1), count)
    check(ordered(index, extent, device, symbolic), expected(index, extent))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "uint64", "int16"])
def test_types_and_shapes(device, dtype):
    index = np.random.default_rng(1).integers(0, 100, (4, 30)).astype(dtype)
    check(ordered(index, 90, device, bounds="drop"), expected(index, 90))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_the_ends_of_a_type_have_no_place(device, dtype, symbolic):
    """An index plus one that is compared with an extent plus one overflows."""
    ends = np.iinfo(dtype)
    index = np.array([2, ends.max, 0, ends.min, -1, ends.max - 1, ends.min + 1, 2], dtype)
    for extent in (1, 3, 4):
        check(ordered(index, extent, device, symbolic, bounds="drop"), expected(index, extent))


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_bad_index_is_an_error_under_raise(device, symbolic):
    index = np.array([0, 3, -5, 2])
    with pytest.raises(Exception, match=r"order: index -5 at .*2.* extent 4"):
        ordered(index, 4, device, symbolic, bounds="raise")


def test_a_bad_index_does_no_harm_where_it_is_trusted(device):
    check(ordered(np.array([5, -9, 1]), 3, device, bounds="trust"), ([2, 0, 1], [0, 0, 1, 1]))


@pytest.mark.parametrize("exponent", [1.0, 3.0])
def test_skewed_destinations(device, exponent):
    index = (np.random.default_rng(2).random(20000) ** exponent * 500).astype("int64")
    check(ordered(index, 500, device), expected(index, 500))


@pytest.mark.parametrize(
    ("index", "extent", "said"),
    [
        (
            relax.Var("x", relax.TensorType([3], "float32")),
            4,
            "index of type float32 is not supported",
        ),
        (relax.Var("i", relax.TensorType([3], "int64")), -1, "-1 destinations must be at least 0"),
        (relax.Var("i", relax.TensorType([3], "int64")), "4", "extent='4' must be a number"),
        (relax.Var("i", relax.TensorType([1 << 31], "int64")), 4, "2147483648 updates must be"),
        (np.zeros(3), 4, "no tensor of Relax"),
    ],
)
def test_what_is_refused(index, extent, said):
    with pytest.raises(tvm_scatter.ScatterError, match=f"order: .*{said}"):
        tvm_scatter.order(index, extent)
