"""Operators by one index share one check of it, where a bad index is an error."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, relax_function, target_of
from test_share_orders import EDGES, NODES, arguments, expected, layers
from tvm import relax

import tvm_scatter
from tvm_scatter.lowering.lower import lower
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import Options

CHECK = "check_indices"


def compiled(module, device, **options):
    with tvm_scatter.options(**{"bounds": "raise", **options}):
        return tvm.compile(module, target_of(device))


def run(executable, device, *arrays):
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    results = machine["main"](*[tvm.runtime.tensor(each, on) for each in arrays])
    return [each.numpy() for each in results]


def checks(executable):
    """How often indices are checked in one run."""
    text = executable.as_text() if hasattr(executable, "as_text") else executable.vm_exec.as_text()
    return sum(line.strip().startswith("call") and CHECK in line for line in text.splitlines())


@pytest.mark.turns(2)
@pytest.mark.parametrize(("symbolic", "fuse"), [(False, False), (True, True)])
def test_layers_pay_one_check_for_each_index(device, symbolic, fuse):
    module = layers(4, symbolic)
    shared = compiled(module, device, fuse=fuse)
    # One for the sources and one for the destinations.
    assert checks(shared) == 2
    if device == "llvm":
        assert checks(compiled(module, device, fuse=fuse, share_checks=False)) > 4
    for result, wanted in zip(
        run(shared, device, *arguments()), expected(*arguments(), 4), strict=True
    ):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(("row", "symbolic"), [(1, False), (0, True)])
@pytest.mark.turns(2)
def test_a_bad_index_is_an_error(device, row, symbolic):
    executable = compiled(layers(3, symbolic), device)
    x, pairs = arguments()
    for bad in (NODES, -NODES - 1, 2**62, -(2**63)):
        pairs[row, EDGES - 1] = bad
        with pytest.raises(Exception, match=f"index {bad} at .* of extent {NODES}"):
            run(executable, device, x, pairs)
    x, pairs = arguments()
    np.testing.assert_array_equal(run(executable, device, x, pairs)[0], expected(x, pairs, 3)[0])


@pytest.mark.parametrize("strict_first", [False, True])
def test_a_negative_index_is_an_error_if_one_takes_none(device, strict_first):
    def build(data, index, rows):
        emit = relax.BlockBuilder.current().emit
        kinds = [{"wrap_negative": False, "operator": "strict"}, {"operator": "other"}]
        for kind in kinds if strict_first else reversed(kinds):
            data = emit(ops.index_put(data, [index], rows, [0], "add", **kind))
        return data

    data, rows = np.zeros((10, 4), "float32"), np.ones((6, 4), "float32")
    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, [data, np.zeros(6, "int64"), rows])
    machine = relax.VirtualMachine(compiled(builder.get(), device), device_of(device))

    def call(index):
        arrays = (data, np.array(index), rows)
        tensors = [tvm.runtime.tensor(each, device_of(device)) for each in arrays]
        return machine["main"](*tensors).numpy()

    assert call([0, 1, 9, 9, 0, 0])[:, 0].tolist() == [6, 2, 0, 0, 0, 0, 0, 0, 0, 4]
    with pytest.raises(Exception, match=r"strict: index -1 at .* of extent 10"):
        call([0, 1, -1, 9, 0, 0])


def rewritten(build, device="llvm", **options):
    """The checks that are made for several operators, and the function after the passes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([10, 4], "float32"))
    index = relax.Var("index", relax.TensorType([6], "int64"))
    other = relax.Var("other", relax.TensorType([6], "int64"))
    with builder.function("main", [x, index, other]):
        with builder.dataflow():
            output = builder.emit_output(relax.Tuple(build(builder.emit, x, index, other)))
        builder.emit_func_output(output)
    mod = builder.get()
    wanted = {"bounds": "raise", "fuse": False, **options}
    with tvm_scatter.options(**wanted) as current, target_of(device):
        mod = tvm.transform.Sequential(tvm_scatter.passes.passes(current))(mod)
    text = mod["main"].script()
    return text.count("tvm_scatter.expect_indices("), text


def read(emit, x, index, axis=0):
    return emit(relax.op.take(x, index, axis))


def put(emit, data, index, **attributes):
    rows = emit(relax.op.ones([6, 4], "float32"))
    return emit(ops.index_put(data, [index], rows, [0], "add", **attributes))


@pytest.mark.parametrize(
    ("build", "shared"),
    [
        (lambda e, x, i, j: [read(e, x, i), put(e, x, i)], 1),
        (lambda e, x, i, j: [read(e, x, i), put(e, x, j)], 0),
        (lambda e, x, i, j: [read(e, x, i), read(e, x, j), put(e, x, j), put(e, x, i)], 2),
        # Another extent.
        (lambda e, x, i, j: [read(e, x, i), read(e, x, i, 1)], 0),
        (lambda e, x, i, j: [read(e, x, i), read(e, e(relax.op.concat([x, x], 0)), i)], 0),
        # Negative indices are out of bounds for one of them, and so for both.
        (lambda e, x, i, j: [put(e, x, i), put(e, x, i, wrap_negative=False)], 1),
        # The same numbers, computed twice.
        (
            lambda e, x, i, j: [
                read(e, x, e(relax.op.add(i, j))),
                put(e, x, e(relax.op.add(i, j))),
            ],
            1,
        ),
        # Indices that need no check at all.
        (lambda e, x, i, j: [read(e, x, e(relax.op.argsort(i)))] * 2, 0),
        # Pairs, and an index for each element.
        (
            lambda e, x, i, j: [
                e(ops.index_put(x, [i, j], e(relax.op.ones([6], "float32")), [0, 1])),
                e(read_ops.index(x, [i, j], [0, 1])),
            ],
            1,
        ),
        (
            lambda e, x, i, j: [
                e(ops.index_put(x, [i, j], e(relax.op.ones([6], "float32")), [0, 1])),
                e(read_ops.index(x, [j, i], [0, 1])),
            ],
            0,
        ),
        (
            lambda e, x, i, j: [
                e(ops.scatter_nd(x, e(relax.op.expand_dims(i, 1)), read(e, x, j))),
                e(read_ops.gather_nd(x, e(relax.op.expand_dims(i, 1)))),
            ],
            1,
        ),
    ],
)
def test_which_are_checked_together(build, shared):
    assert rewritten(build)[0] == shared
    assert rewritten(build, bounds="drop")[0] == 0
    assert rewritten(build, share_checks=False)[0] == 0


def test_a_callers_tensor_is_overwritten_after_a_check_of_its_own():
    """The shared one may be over on the device only when the tensor is written already."""
    _, text = rewritten(lambda e, x, i, j: [read(e, x, i), put(e, x, i)], donate=["x"])
    assert text.count("checked=True") == 2
    call = ScatterCall(
        ops.INDEX_PUT,
        relax.Var("x", relax.TensorType([10, 4], "float32")),
        indices=(relax.Var("i", relax.TensorType([6], "int64")),),
        updates=relax.Var("u", relax.TensorType([6, 4], "float32")),
        axes=(0,),
        checked=True,
    )
    wanted = Options(bounds="raise")
    policies = {
        (place, kind): lower(call.replace(**asked), wanted, kind).problem.bounds
        for place, asked in {
            "elsewhere": {},
            "there": {"in_place": True},
            "in between": {"in_place": True, "temporary": True},
        }.items()
        for kind in ("llvm", "cuda")
    }
    assert [place for place, policy in policies.items() if policy == "raise"] == [
        ("there", "llvm"),
        ("there", "cuda"),
    ]
    assert {policies[place, "cuda"] for place in ("elsewhere", "in between")} == {"drop"}


def test_positions_in_errors():
    """An embedding's index is flattened when it is imported."""

    def build(e, x, i, j):
        return [e(relax.op.take(x, i, 0, mode="embedding")), put(e, x, i, wrap_negative=False)]

    count, text = rewritten(build)
    assert count == 1 and 'read="relax.take"' in text.replace("'", '"')


def test_what_explain_says():
    with tvm_scatter.options(bounds="raise"):
        found = tvm_scatter.explain(layers(), "llvm")
    [sources, destinations] = [str(each) for each in found.notes if each.switch == "share_checks"]
    assert "is checked together with" in sources and "is checked together with" in destinations
