"""``tvm_scatter.order``: the updates in the order of their destinations."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from harness import declared, device_of, orders, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.emit.ordering import LIMIT


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


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("count", "extent"), [(0, 3), (0, 0), (1, 1), (2, 1), (2, 2), (1, 700), (5000, 3), (700, 5000)]
)
def test_sizes(device, count, extent, symbolic):
    index = np.random.default_rng(count).integers(0, max(extent, 1), count)
    check(ordered(index, extent, device, symbolic), expected(index, extent))


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "uint64", "int16"])
def test_types_and_shapes(device, dtype):
    index = np.random.default_rng(1).integers(0, 100, (4, 30)).astype(dtype)
    check(ordered(index, 90, device, bounds="drop"), expected(index, 90))


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_the_ends_of_a_type_have_no_place(device, dtype, symbolic):
    """An index plus one that is compared with an extent plus one overflows."""
    ends = np.iinfo(dtype)
    index = np.array([2, ends.max, 0, ends.min, -1, ends.max - 1, ends.min + 1, 2], dtype)
    for extent in (1, 3, 4):
        check(ordered(index, extent, device, symbolic, bounds="drop"), expected(index, extent))


@pytest.mark.turns(2)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_bad_index_is_an_error_under_raise(device, symbolic):
    index = np.array([0, 3, -5, 2])
    with pytest.raises(Exception, match=r"order: index -5 at .*2.* extent 4"):
        ordered(index, 4, device, symbolic, bounds="raise")


@pytest.mark.each_device
def test_a_bad_index_does_no_harm_where_it_is_trusted(device):
    check(ordered(np.array([5, -9, 1]), 3, device, bounds="trust"), ([2, 0, 1], [0, 0, 1, 1]))


@pytest.mark.parametrize("exponent", [1.0, 3.0])
def test_skewed_destinations(device, exponent):
    index = (np.random.default_rng(2).random(20000) ** exponent * 500).astype("int64")
    check(ordered(index, 500, device), expected(index, 500))


def of_size(count):
    """An index of a declared size."""
    return relax.Var("i", relax.TensorType([count], "int64"))


@pytest.mark.parametrize(
    ("index", "extent", "said"),
    [
        (
            relax.Var("x", relax.TensorType([3], "float32")),
            4,
            "index of type float32 is not supported",
        ),
        (of_size(3), -1, f"an order of -1 destinations .* at least 0 and fewer than {LIMIT}"),
        (of_size(3), LIMIT, f"an order of {LIMIT} destinations .* fewer than {LIMIT}"),
        (of_size(3), "4", "extent='4' must be a number"),
        (of_size(LIMIT), 4, f"an order of {LIMIT} updates .* fewer than {LIMIT}"),
        (np.zeros(3), 4, "no tensor of Relax"),
    ],
)
def test_what_is_refused(index, extent, said):
    with pytest.raises(tvm_scatter.ScatterError, match=f"order: .*{said}"):
        tvm_scatter.order(index, extent)


def test_flags_are_true_or_false():
    """Also those of NumPy; a text would be true."""
    made = tvm_scatter.order(of_size(3), 4, ascending=np.bool_(True))
    assert (
        made.attrs["ascending"]
        == tvm_scatter.order(of_size(3), 4, ascending=True).attrs["ascending"]
    )
    with pytest.raises(
        tvm_scatter.ScatterError, match="order: ascending='no' must be True or False"
    ):
        tvm_scatter.order(of_size(3), 4, ascending="no")


def test_as_many_as_an_order_can_have():
    made = tvm_scatter.order(of_size(LIMIT - 1), LIMIT - 1)
    assert made.op.name == "relax.tvm_scatter.order"


@pytest.mark.parametrize("attributes", [{}, {"ascending": True, "offsets_only": True}])
@pytest.mark.parametrize(("count", "extent"), [(LIMIT, 3), (3, LIMIT)])
def test_sizes_that_become_known_are_checked(count, extent, attributes):
    """They are symbolic when the order is asked for."""
    sizes = [tvm.tirx.Var(name, "int64") for name in ("count", "extent")]
    builder = relax.BlockBuilder()
    room = relax.Var("room", relax.TensorType([sizes[1], 0], "int8"))
    with builder.function("main", [index := of_size(sizes[0]), room]):
        made = builder.emit(tvm_scatter.order(index, sizes[1], **attributes))
        builder.emit_func_output(made)
    module = relax.transform.BindSymbolicVars({"count": count, "extent": extent})(builder.get())
    said = f"order: an order of {LIMIT} .* fewer than {LIMIT}"
    with target_of("llvm"), pytest.raises(tvm_scatter.ScatterError, match=said):
        relax.transform.LegalizeOps()(module)


@pytest.mark.parametrize(("count", "extent"), [(LIMIT, 3), (3, LIMIT)])
def test_too_many_are_an_error_at_run_time(count, extent):
    """The function is called by itself: a model would allocate the results in front of it."""
    sizes = [tvm.tirx.Var(name, "int64") for name in ("count", "extent")]
    builder = relax.BlockBuilder()
    room = relax.Var("room", relax.TensorType([sizes[1], 0], "int8"))
    with builder.function("main", [index := of_size(sizes[0]), room]):
        builder.emit_func_output(builder.emit(tvm_scatter.order(index, sizes[1])))
    with target_of("llvm"), tvm_scatter.options(bounds="drop"):
        function = relax.transform.LegalizeOps()(builder.get())["order"]
    called = tvm.compile(function.with_attr("global_symbol", "order"), target_of("llvm"))["order"]
    given = [declared([count], "int64"), declared([count], "int32")]
    given += [declared([extent + 1], "int32"), declared([64], "uint8")]
    said = f"order: an order must be of fewer than {LIMIT} updates and destinations"
    with pytest.raises(RuntimeError, match=said):
        called(*given)
