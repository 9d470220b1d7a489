"""Scatters to which the order of their updates is given."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target, in_one_source
from harness import at_its_address, declared, device_of, orders, target_of
from machine_code import cubin, needs_nvrtc
from tvm import relax

import tvm_scatter
from tvm_scatter.emit.ordering import LIMIT
from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.passes import passes

REDUCTIONS = ("add", "mean", "max", "min", "mul")


def build(
    arrays, extent, reductions, ordered=True, symbolic=False, include_self=True, gather=False
):
    """A module of scatters by one index, which share an order: ``data[index] op= updates``.

    Where ``gather``, the updates are the rows ``updates[source]``.
    """
    sizes = {}

    def dim(size):
        return sizes.setdefault(size, tvm.tirx.Var(f"d{size}", "int64")) if symbolic else size

    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(name, relax.TensorType([dim(size) for size in array.shape], str(array.dtype)))
        for name, array in arrays.items()
    ]
    known = dict(zip(arrays, parameters, strict=True))
    with builder.function("main", parameters):
        with builder.dataflow():
            updates = known["updates"]
            if gather:
                updates = builder.emit(relax.op.take(updates, known["source"], axis=0))
            ordering = None
            if ordered:
                ordering = builder.emit(tvm_scatter.order(known["index"], dim(extent)))
            results = [
                builder.emit(
                    index_put(
                        known["data"],
                        [known["index"]],
                        updates,
                        [0],
                        reduction,
                        include_self=include_self,
                        ordering=ordering,
                    )
                )
                for reduction in reductions
            ]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def run(module, arrays, device, **options):
    return run_compiled(compiled(module, device, **options), arrays, device)


def compiled(module, device, **options):
    with tvm_scatter.options(**options):
        executable = tvm.compile(module, target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def run_compiled(machine, arrays, device):
    on = device_of(device)
    tensors = [tvm.runtime.tensor(array, on) for array in arrays.values()]
    results = []
    for _ in orders(device):
        results.append([each.numpy() for each in machine["main"](*tensors)])
    for each in results[1:]:
        for left, right in zip(each, results[0], strict=True):
            np.testing.assert_array_equal(left, right)
    return results[0]


def drawn(count, extent, width, seed=0, dtype="float32", skew=1.0):
    generator = np.random.default_rng(seed)
    shape = (width,) if width else ()
    return {
        "data": generator.integers(-3, 4, (extent, *shape)).astype(dtype),
        "index": (generator.random(count) ** skew * (2 * extent + 2)).astype("int64") - extent - 1,
        "updates": generator.integers(-2, 3, (count, *shape)).astype(dtype),
    }


def expected(arrays, reduction, include_self=True):
    """The scatter by NumPy, one destination after the other; bad indices are dropped."""
    data, updates = arrays["data"].copy(), arrays["updates"]
    if "source" in arrays:
        updates = updates[arrays["source"]]
    extent = len(data)
    index = np.where(arrays["index"] < 0, arrays["index"] + extent, arrays["index"])
    combine = {"add": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "mul": np.prod}
    for place in range(extent):
        rows = updates[index == place]
        if len(rows):
            rows = np.concatenate([data[place : place + 1], rows]) if include_self else rows
            data[place] = combine[reduction](rows.astype("float64"), axis=0)
    return data


def test_by_eye(device):
    arrays = {
        "data": np.array([10, 20, 30, 40], "float32"),
        "index": np.array([2, 0, 2, -4, 9]),
        "updates": np.array([1, 2, 3, 4, 5], "float32"),
    }
    sums, most, means = run(build(arrays, 4, ["add", "max", "mean"]), arrays, device, bounds="drop")
    # 0 gets 2 and, by -4, another 4; 2 gets 1 and 3; nothing gets the 5, whose index is 9 of 4.
    assert sums.tolist() == [16, 20, 34, 40]
    assert most.tolist() == [10, 20, 30, 40]
    assert means.tolist() == [np.float32(16 / 3), 20, np.float32(34 / 3), 40]


SIZES = ((0, 3, 2), (1, 1, 1), (2, 5, 3), (90, 7, 8), (70, 130, 36))


def check_sizes(machine, reductions, sizes, device, include_self):
    arrays = drawn(*sizes)
    results = run_compiled(machine, arrays, device)
    for reduction, result in zip(reductions, results, strict=True):
        if reduction == "mul" and sizes[0] >= 10:
            continue
        wanted = expected(arrays, reduction, include_self)
        np.testing.assert_allclose(result, wanted, rtol=1e-6, err_msg=f"{reduction} {sizes}")


@pytest.mark.turns(2)
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_sizes(device, number):
    """With the data included and without take turns; both have symbolic sizes."""
    sizes, include_self = SIZES[number], number % 2 == 0
    reductions = [each for each in REDUCTIONS if each != "mul" or sizes[0] < 10]
    module = build(drawn(*sizes), sizes[1], reductions, include_self=include_self)
    machine = compiled(module, device, bounds="drop")
    check_sizes(machine, reductions, sizes, device, include_self)


@pytest.mark.turns(4)
@pytest.mark.parametrize("include_self", [True, False])
def test_symbolic_sizes(device, include_self):
    """One module serves all sizes."""
    module = build(drawn(90, 7, 8), 7, REDUCTIONS, True, True, include_self)
    machine = compiled(module, device, bounds="drop")
    for sizes in SIZES:
        check_sizes(machine, REDUCTIONS, sizes, device, include_self)


def test_skewed_destinations(device):
    """Long segments, and one of more than a chunk of chunks."""
    arrays = drawn(9000, 40, 4, skew=1.0)
    arrays["index"][np.random.default_rng(1).permutation(9000)[:6000]] = 17
    [result] = run(build(arrays, 40, ["add"]), arrays, device, bounds="drop")
    np.testing.assert_array_equal(result, expected(arrays, "add"))


@pytest.mark.parametrize(
    ("width", "knobs"),
    [
        (33, {"threads": 128}),
        (64, {"threads": 256}),
        (200, {"threads": 256}),
    ],
)
@pytest.mark.turns(2)
def test_rows_of_all_lengths(device, width, knobs):
    """Rows without updates, short ones, some of about a chunk, and long ones."""
    if device == "llvm":
        pytest.skip("it has no knobs there")
    arrays = drawn(1, 61, width)
    counts = np.random.default_rng(5).choice([0, 0, 1, 3, 63, 64, 65, 130, 300], 61)
    arrays["index"] = np.random.default_rng(6).permutation(np.repeat(np.arange(61), counts))
    many = len(arrays["index"])
    arrays["updates"] = np.random.default_rng(7).integers(-2, 3, (many, width)).astype("float32")
    for include_self in (True, False):
        module = build(arrays, 61, ["add", "max"], include_self=include_self)
        results = run(module, arrays, device, implementation="ordered", knobs=knobs, bounds="drop")
        for reduction, result in zip(["add", "max"], results, strict=True):
            np.testing.assert_array_equal(result, expected(arrays, reduction, include_self))


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["float16", "int32", "float64"])
def test_types(device, dtype):
    arrays = drawn(60, 20, 8, dtype=dtype)
    results = run(build(arrays, 20, ["add", "max"]), arrays, device, bounds="drop")
    np.testing.assert_array_equal(results[0], expected(arrays, "add"))
    np.testing.assert_array_equal(results[1], expected(arrays, "max"))


@pytest.mark.turns(2)
@pytest.mark.parametrize("symbolic", [False, True])
def test_with_computed_updates(device, symbolic):
    arrays = drawn(300, 50, 8)
    arrays["source"] = np.random.default_rng(3).integers(0, 300, 300)
    module = build(arrays, 50, ["add", "max"], symbolic=symbolic, gather=True)
    with tvm_scatter.options(fuse=True, bounds="drop"):
        found = tvm_scatter.explain(module, target_of(device))
    assert all(each.problem.fused and each.problem.ordered for each in found)
    results = run(module, arrays, device, fuse=True, bounds="drop")
    for reduction, result in zip(["add", "max"], results, strict=True):
        np.testing.assert_array_equal(result, expected(arrays, reduction))


def test_its_implementation_is_the_one_that_takes_an_order(device):
    arrays = drawn(60, 20, 8)
    given, own = (
        tvm_scatter.explain(build(arrays, 20, ["add"], ordered), target_of(device))[0]
        for ordered in (True, False)
    )
    assert given.implementation == "ordered" and given.problem.bounds == "drop"
    assert given.alternatives["sequential"] == "it makes an order of its own, and one is given"
    assert own.alternatives["ordered"] == "no order of the updates is given"


def source(module, target):
    """The CUDA source of what orders and scatters in a module."""
    with tvm_scatter.options(fuse=True), target:
        module = tvm.transform.Sequential(passes(tvm_scatter.current_options()))(module)
        module = relax.transform.LegalizeOps()(module)
    functions = {
        name.name_hint: function
        for name, function in module.functions.items()
        if name.name_hint == "order" or "scatter" in name.name_hint
    }
    return in_one_source(functions, target).source


@needs_nvrtc
@pytest.mark.parametrize("arch", [pytest.param("sm_75", marks=pytest.mark.exhaustive), "sm_90"])
@pytest.mark.parametrize("symbolic", [pytest.param(False, marks=pytest.mark.exhaustive), True])
@pytest.mark.exhaustive
def test_it_compiles(arch, symbolic):
    arrays = drawn(5000, 300, 36, dtype="float16")
    arrays["source"] = np.zeros(5000, "int64")
    module, target = (
        build(arrays, 300, REDUCTIONS, symbolic=symbolic, gather=True),
        cuda_target(arch),
    )
    assert cubin(source(module, target), arch).startswith(b"\x7fELF")


def test_another_implementation_makes_its_own(device):
    arrays = drawn(60, 20, 8)
    module = build(arrays, 20, ["add"])
    with tvm_scatter.options(implementation="sort_based", bounds="drop"):
        [found] = tvm_scatter.explain(module, target_of(device))
    assert found.implementation == "sort_based" and not found.problem.ordered
    [result] = run(module, arrays, device, implementation="sort_based", bounds="drop")
    np.testing.assert_array_equal(result, expected(arrays, "add"))


@pytest.mark.each_device
def test_a_bad_index_is_an_error_under_raise(device):
    arrays = drawn(60, 20, 8)
    module = build(arrays, 20, ["add", "max"])
    with pytest.raises(Exception, match=r"order: index .* out of bounds for an axis of extent 20"):
        run(module, arrays, device, bounds="raise")


@pytest.mark.each_device
def test_an_order_of_other_sizes_is_refused(device):
    builder, types = relax.BlockBuilder(), relax.TensorType
    data, index = relax.Var("d", types([4, 2], "float32")), relax.Var("i", types([3], "int64"))
    updates = relax.Var("u", types([3, 2], "float32"))
    with builder.function("main", [data, index, updates]):
        with builder.dataflow():
            ordering = builder.emit(tvm_scatter.order(index, 5))
            call = index_put(data, [index], updates, [0], "add", ordering=ordering)
            output = builder.emit_output(builder.emit(call))
        builder.emit_func_output(output)
    with pytest.raises(tvm_scatter.ScatterError, match=r"index_put: the offsets .* shape \(5,\)"):
        tvm.compile(builder.get(), target_of(device))


def test_an_order_of_other_symbolic_sizes_is_an_error_at_run_time(device):
    arrays = drawn(6, 5, 2)
    builder = relax.BlockBuilder()
    sizes = {name: tvm.tirx.Var(name, "int64") for name in ("n", "k", "other")}
    shapes = {
        "data": ([sizes["n"], 2], "float32"),
        "index": ([sizes["k"]], "int64"),
        "updates": ([sizes["k"], 2], "float32"),
        "room": ([sizes["other"]], "int8"),
    }
    parameters = {name: relax.Var(name, relax.TensorType(*of)) for name, of in shapes.items()}
    with builder.function("main", list(parameters.values())):
        with builder.dataflow():
            ordering = builder.emit(tvm_scatter.order(parameters["index"], sizes["other"]))
            call = index_put(
                parameters["data"],
                [parameters["index"]],
                parameters["updates"],
                [0],
                "add",
                ordering=ordering,
            )
            output = builder.emit_output(builder.emit(relax.Tuple([builder.emit(call)])))
        builder.emit_func_output(output)
    arrays["index"] = np.arange(6) % 3
    fitting = {**arrays, "room": np.zeros(5, "int8")}
    [result] = run(builder.get(), fitting, device, bounds="drop")
    np.testing.assert_array_equal(result, expected(arrays, "add"))
    with pytest.raises(Exception, match="index_put: the offsets of ordering"):
        run(builder.get(), {**arrays, "room": np.zeros(3, "int8")}, device, bounds="drop")


def test_wrong_arguments():
    types = relax.TensorType
    data, index = relax.Var("d", types([4, 2], "float32")), relax.Var("i", types([3], "int64"))
    updates = relax.Var("u", types([3, 2], "float32"))
    with pytest.raises(
        tvm_scatter.ScatterError, match=r"ordering is .*; it must be a pair of tens"
    ):
        index_put(data, [index], updates, [0], ordering=index)
    with pytest.raises(tvm_scatter.ScatterError, match=r"one index along axis 0, but .* \[1\]"):
        index_put(data, [index], updates, [1], ordering=(index, index))
    call = ScatterCall.from_call(scatter_elements(data, index, updates))
    assert call.ordering == ()


def foreign(extent, width, shapes, is_index_computed=False, gather=False, symbolic=False):
    """A module that scatters in an order that comes from outside.

    Parameters
    ----------
    shapes : dict
        Those of the offsets and, in front of them, of the permutation, unless updates stand in the
        order already.
    """
    count = tvm.tirx.Var("count", "int64") if symbolic else shapes["updates"]
    builder = relax.BlockBuilder()
    types = {
        "data": ([extent, width], "float32"),
        "index": ([count], "int64"),
        "updates": ([count, width], "float32"),
        **({"source": ([count], "int64")} if gather else {}),
        **({"permutation": ([count], "int32")} if "permutation" in shapes else {}),
        "offsets": ([shapes["offsets"]], "int32"),
    }
    known = {name: relax.Var(name, relax.TensorType(*of)) for name, of in types.items()}
    with builder.function("main", list(known.values())):
        with builder.dataflow():
            index, updates = known["index"], known["updates"]
            if is_index_computed:
                index = builder.emit(relax.op.add(index, relax.const(1, "int64")))
            if gather:
                updates = builder.emit(relax.op.take(updates, known["source"], axis=0))
            ordering = [known[name] for name in ("permutation", "offsets") if name in known]
            put = index_put(known["data"], [index], updates, [0], "add", ordering=ordering)
            output = builder.emit_output(put)
        builder.emit_func_output(output)
    return builder.get()


def test_offsets_alone_by_eye(device):
    """Rows of a CSR matrix: nothing is before the first offset, and nothing behind the last."""
    module = foreign(3, 1, {"updates": 6, "offsets": 4})
    arrays = {
        "data": np.array([[10], [20], [30]], "float32"),
        # Not read.
        "index": np.full(6, 99),
        "updates": np.array([[1], [2], [3], [4], [5], [6]], "float32"),
        "offsets": np.array([1, 3, 3, 5], "int32"),
    }
    machine = compiled(module, device)
    tensors = [tvm.runtime.tensor(each, device_of(device)) for each in arrays.values()]
    assert machine["main"](*tensors).numpy().tolist() == [[15], [20], [39]]


@pytest.mark.parametrize("order", ["permutation and offsets", "offsets"])
def test_more_than_an_order_can_have(device, order):
    for count, extent, what in ((LIMIT, 3, "updates"), (6, LIMIT, "destinations")):
        shapes = {"updates": count, "offsets": extent + 1}
        if order != "offsets":
            shapes["permutation"] = count
        said = f"index_put: an order of {LIMIT} {what} cannot be made; .* fewer than {LIMIT}"
        with pytest.raises(tvm_scatter.ScatterError, match=said):
            tvm.compile(foreign(extent, 1, shapes), target_of(device))


def test_more_than_an_order_can_have_at_run_time():
    """Offsets of nothing: one update less than the limit is read by nobody."""
    machine = compiled(foreign(3, 1, {"updates": 6, "offsets": 4}, symbolic=True), "llvm")
    data = tvm.runtime.tensor(np.array([[1], [2], [3]], "float32"))
    offsets = tvm.runtime.tensor(np.zeros(4, "int32"))

    def run_of(count):
        updates = declared([count], "int64"), declared([count, 1], "float32")
        return machine["main"](data, *updates, offsets).numpy().tolist()

    assert run_of(LIMIT - 1) == [[1], [2], [3]]
    said = f"index_put: an order must be of fewer than {LIMIT} updates and destinations"
    with pytest.raises(RuntimeError, match=said):
        run_of(LIMIT)


def test_an_index_beside_offsets_alone_may_be_anything(device):
    """Also where a segment has so many updates that it is cut."""
    many = 3000
    module, on = foreign(2, 1, {"updates": many, "offsets": 3}), device_of(device)
    arrays = [np.zeros((2, 1)), np.full(many, 2**40), np.ones((many, 1)), [0, many, many]]
    types = ("float32", "int64", "float32", "int32")
    given = [np.asarray(each, dtype) for each, dtype in zip(arrays, types, strict=True)]
    machine = compiled(module, device, bounds="raise")
    result = machine["main"](*(tvm.runtime.tensor(each, on) for each in given))
    assert result.numpy().tolist() == [[many], [0]]


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("is_index_computed", "gather"),
    [
        *((False, True), (True, False)),
        *(pytest.param(same, same, marks=pytest.mark.exhaustive) for same in (False, True)),
    ],
)
@pytest.mark.parametrize("order", ["permutation and offsets", "offsets"])
def test_orders_from_outside(device, order, is_index_computed, gather, symbolic):
    """Some rows have no updates, some a few, and some so many that several threads share them."""
    counts = np.random.default_rng(5).choice([0, 0, 1, 3, 63, 64, 65, 130, 2500], 40)
    index = np.repeat(np.arange(40), counts)
    arrays = {"data": drawn(1, 40, 12)["data"], "index": index}
    many = len(index)
    if order != "offsets":
        arrays["index"] = np.random.default_rng(6).permutation(index)
    arrays["updates"] = drawn(many, 40, 12)["updates"]
    if gather:
        arrays["source"] = np.random.default_rng(3).integers(0, many, many)
    wanted = expected(arrays, "add")
    if order != "offsets":
        arrays["permutation"] = np.argsort(arrays["index"], kind="stable").astype("int32")
    arrays["offsets"] = np.concatenate([[0], np.cumsum(counts)]).astype("int32")
    shapes = {name: len(array) for name, array in arrays.items()}
    module = foreign(40, 12, shapes, is_index_computed, gather, symbolic)
    with tvm_scatter.options(fuse=True), target_of(device):
        found = tvm_scatter.explain(module, target_of(device))[0].problem
    assert found.ordered and found.in_order == (order == "offsets")
    assert found.order_alone == (is_index_computed or order == "offsets")
    arrays["index"] = arrays["index"] - is_index_computed
    machine, on = compiled(module, device, fuse=True), device_of(device)
    result = machine["main"](*(tvm.runtime.tensor(each, on) for each in arrays.values()))
    np.testing.assert_array_equal(result.numpy(), wanted)


@pytest.mark.turns(4)
@needs_nvrtc
@pytest.mark.parametrize("order", ["permutation and offsets", "offsets"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_long_orders_from_outside_compile(order, symbolic):
    """So long that lists carry what is read for each row, unless updates stand in the order."""
    many = 1 << 18
    shapes = {"updates": many, "offsets": 301}
    if order != "offsets":
        shapes = {"permutation": many, **shapes}
    module, target = foreign(300, 64, shapes, True, True, symbolic), cuda_target("sm_90")
    made = source(module, target)
    assert ("carry_updates<P>" in made) == (order != "offsets")
    assert cubin(made, "sm_90").startswith(b"\x7fELF")


@pytest.mark.parametrize("symbolic", [False, True])
def test_each_of_a_chain_has_its_own_order(device, symbolic):
    """Scatters into the result of another, whose updates stand in another order."""
    counts = np.array([[2, 0, 3, 1], [0, 4, 0, 2]])
    sizes = [tvm.tirx.Var(f"k{at}", "int64") if symbolic else 6 for at in range(2)]
    types = {"data": ([4, 8], "float32")}
    for at, size in enumerate(sizes):
        types[f"index{at}"], types[f"updates{at}"] = ([size], "int64"), ([size, 8], "float32")
        types[f"offsets{at}"] = [5], "int32"
    known = {name: relax.Var(name, relax.TensorType(*of)) for name, of in types.items()}
    builder = relax.BlockBuilder()
    with builder.function("main", list(known.values())):
        with builder.dataflow():
            result = known["data"]
            for at in range(2):
                index, updates = [known[f"index{at}"]], known[f"updates{at}"]
                order = (known[f"offsets{at}"],)
                put = index_put(result, index, updates, [0], "add", ordering=order)
                result = builder.emit(put)
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    arrays = {"data": np.zeros((4, 8), "float32")}
    for at in range(2):
        arrays[f"index{at}"] = np.repeat(np.arange(4), counts[at])
        arrays[f"updates{at}"] = np.full((6, 8), 10**at, "float32")
        arrays[f"offsets{at}"] = np.concatenate([[0], np.cumsum(counts[at])]).astype("int32")
    machine, on = compiled(builder.get(), device), device_of(device)
    found = machine["main"](*(tvm.runtime.tensor(each, on) for each in arrays.values())).numpy()
    assert found[:, 0].tolist() == [2, 40, 3, 21] and (found == found[:, :1]).all()


def test_who_reads_an_index_besides(device):
    """Then it is computed all the same, and nobody searches what it says."""
    builder, types = relax.BlockBuilder(), relax.TensorType
    given = [
        relax.Var("index", types([6], "int64")),
        relax.Var("updates", types([6, 2], "float32")),
    ]
    given.append(relax.Var("offsets", types([4], "int32")))
    with builder.function("main", given):
        with builder.dataflow():
            index = builder.emit(relax.op.add(given[0], relax.const(1, "int64")))
            zeros = builder.emit(relax.op.zeros([3, 2], "float32"))
            put = index_put(zeros, [index], given[1], [0], "add", ordering=given[2:])
            output = builder.emit_output(relax.Tuple([builder.emit(put), index]))
        builder.emit_func_output(output)
    [found] = tvm_scatter.explain(builder.get(), target_of(device))
    assert found.problem.in_order and not found.problem.order_alone


@pytest.mark.each_device
def test_who_reads_the_index_is_refused_where_there_is_only_an_order(device):
    module, target = foreign(3, 2, {"updates": 6, "offsets": 4}), target_of(device)

    def forced(name, mod):
        with tvm_scatter.options(implementation=name), target:
            [found] = tvm_scatter.explain(mod, target)
            relax.transform.LegalizeOps()(mod)
        return found

    with target:
        alone = tvm.transform.Sequential(passes(tvm_scatter.current_options()))(module)
    assert forced("ordered", alone).problem.order_alone
    said = (
        "index_put: implementation='sequential' reads the index, of which the passes have left "
        "only the order; it must be forced before the passes run, or be 'ordered'."
    )
    with pytest.raises(tvm_scatter.ScatterError, match=f"^{re.escape(said)}$"):
        forced("sequential", alone)
    # If it is forced in time, it has the index.
    assert not forced("sequential", module).problem.ordered
    with pytest.raises(tvm_scatter.ScatterError, match="unknown implementation 'sorted'"):
        forced("sorted", alone)


def wrong_orders(device):
    """Permutations and offsets of nothing."""
    generator = np.random.default_rng(3)
    limits = np.iinfo("int32")
    good = np.sort(generator.integers(0, 91, 21)).astype("int32")
    wild = np.where(generator.random(21) < 0.5, limits.min, generator.integers(0, limits.max, 21))
    for offsets in (good, good[::-1], good - 50, good + 50, wild, np.full(21, limits.max)):
        yield generator.integers(0, 90, 90), offsets
        yield None, offsets
        if device == "llvm":
            # On a GPU, these would be read outside of the updates.
            yield generator.integers(limits.min, limits.max, 90), offsets


@pytest.mark.each_device
def test_a_wrong_order_writes_nothing_outside(device):
    shapes = {"permutation": 90, "updates": 90, "offsets": 21}
    with tvm_scatter.options(donate=["data"], bounds="drop"):
        listed = compiled(foreign(20, 6, shapes), device)
        in_order = compiled(foreign(20, 6, {"updates": 90, "offsets": 21}), device)
    on = device_of(device)
    arrays = drawn(90, 20, 6)
    for permutation, offsets in wrong_orders(device):
        # A simulated device looks after its own memory.
        around = tvm.runtime.tensor(np.full((60, 6), 7, "float32"), on)
        data = at_its_address(around._create_view((20, 6), "float32", 20 * 6 * 4))
        data.copyfrom(arrays["data"])
        order = [offsets] if permutation is None else [permutation, offsets]
        given = [arrays["index"], arrays["updates"], *map(np.int32, order)]
        machine = in_order if permutation is None else listed
        ascending = (np.diff(offsets) >= 0).all() and offsets[0] >= 0 and offsets[-1] <= 90
        expectation = contextlib.nullcontext()
        if device == "llvm" and not ascending:
            expectation = pytest.raises(Exception, match="offsets of ordering must ascend")
        with expectation:
            machine["main"](data, *(tvm.runtime.tensor(each, on) for each in given))
        left = around.numpy()
        assert (left[:20] == 7).all() and (left[40:] == 7).all()
