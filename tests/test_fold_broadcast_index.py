"""An index that is a broadcast of a 1-D tensor becomes one index per row, and nothing else does."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import pipeline as tvm_pipelines
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_scatter
from tvm_scatter.ops.operators import INDEX_PUT, index_put, scatter_elements
from tvm_scatter.ops.read_ops import INDEX
from tvm_scatter.passes import FoldBroadcastIndex


def operators(mod):
    """Names of the operators that the functions of a module call."""
    names = []

    def note(expr):
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(expr.op.name)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, note)
    return names


def module(index_shape, make_index, data_shape, update_shape, axis=0, scatter=None, dataflow=True):
    """A module whose main scatters with an index that ``make_index`` makes from a parameter."""
    bb = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(data_shape, "float32"))
    index = relax.Var("index", relax.TensorType(index_shape, "int64"))
    updates = relax.Var("updates", relax.TensorType(update_shape, "float32"))
    scatter = scatter or (
        lambda *args: relax.op.scatter_elements(*args, axis=axis, reduction="add")
    )
    with bb.function("main", [data, index, updates]):
        if dataflow:
            with bb.dataflow():
                made = make_index(bb, index)
                out = bb.emit_output(bb.emit(scatter(data, made, updates)))
        else:
            out = bb.emit(scatter(data, make_index(bb, index), updates))
        bb.emit_func_output(out)
    return bb.get()


def run(mod, *arrays):
    executable = tvm.compile(mod, target=tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(array) for array in arrays)).numpy()


def reference(data, index, updates, axis):
    """scatter_elements with add, on an index of full rank."""
    out = data.copy()
    for at in np.ndindex(*index.shape):
        to = list(at)
        to[axis] = index[at]
        out[tuple(to)] += updates[at]
    return out


CHAINS = {
    "expand_dims": (
        (5,),
        lambda bb, i: bb.emit(relax.op.broadcast_to(bb.emit(relax.op.expand_dims(i, [1])), (5, 4))),
    ),
    "negative expand_dims": (
        (5,),
        lambda bb, i: bb.emit(relax.op.broadcast_to(bb.emit(relax.op.expand_dims(i, -1)), (5, 4))),
    ),
    "reshape": (
        (5,),
        lambda bb, i: bb.emit(relax.op.broadcast_to(bb.emit(relax.op.reshape(i, (-1, 1))), (5, 4))),
    ),
    "two broadcasts and a squeeze": (
        (5,),
        lambda bb, i: bb.emit(
            relax.op.squeeze(
                bb.emit(
                    relax.op.broadcast_to(
                        bb.emit(
                            relax.op.reshape(bb.emit(relax.op.expand_dims(i, [1, 2])), (5, 1, 1))
                        ),
                        (5, 1, 4),
                    )
                ),
                [1],
            )
        ),
    ),
    "transpose": (
        (5,),
        lambda bb, i: bb.emit(
            relax.op.permute_dims(bb.emit(relax.op.broadcast_to(i, (4, 5))), axes=[1, 0])
        ),
    ),
    "two axes already": ((5, 1), lambda bb, i: bb.emit(relax.op.broadcast_to(i, (5, 4)))),
    "cast": (
        (5,),
        lambda bb, i: bb.emit(
            relax.op.astype(
                bb.emit(relax.op.broadcast_to(bb.emit(relax.op.expand_dims(i, [1])), (5, 4))),
                "int32",
            )
        ),
    ),
}


@pytest.mark.parametrize("dataflow", [True, False])
@pytest.mark.parametrize("chain", CHAINS)
def test_chain_is_folded(chain, dataflow):
    shape, make = CHAINS[chain]
    mod = module(shape, make, (8, 4), (5, 4), dataflow=dataflow)
    folded = FoldBroadcastIndex()(mod)
    assert INDEX_PUT in operators(folded)
    assert "relax.broadcast_to" not in operators(folded)
    relax.analysis.well_formed(folded)

    data = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    updates = np.ones((5, 4), "float32")
    index = np.array([7, 0, 0, -1, 3]).reshape(shape)
    expected = reference(data, np.broadcast_to(index.reshape(5, 1), (5, 4)), updates, 0)
    np.testing.assert_allclose(run(mod, data, index, updates), expected, rtol=1e-6)


@pytest.mark.parametrize("axis", [1, -2])
def test_middle_axis(axis):
    def make(bb, i):
        return bb.emit(relax.op.broadcast_to(bb.emit(relax.op.reshape(i, (1, 5, 1))), (2, 5, 3)))

    mod = module((5,), make, (2, 9, 3), (2, 5, 3), axis)
    assert INDEX_PUT in operators(FoldBroadcastIndex()(mod))
    rng = np.random.default_rng(1)
    data = rng.normal(size=(2, 9, 3)).astype("float32")
    updates = rng.normal(size=(2, 5, 3)).astype("float32")
    index = np.array([8, 8, 0, -9, 2])
    full = np.broadcast_to(index.reshape(1, 5, 1), (2, 5, 3))
    np.testing.assert_allclose(
        run(mod, data, index, updates), reference(data, full, updates, 1), rtol=1e-5
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_one_element(axis):
    """An index with all its numbers along one axis is an index per row as it is."""
    shape, whole = ((5, 1), (8, 1)) if axis == 0 else ((1, 5), (1, 8))
    mod = module(shape, lambda bb, i: i, whole, shape, axis)
    assert INDEX_PUT in operators(FoldBroadcastIndex()(mod))
    rng = np.random.default_rng(4)
    data, updates = (rng.normal(size=size).astype("float32") for size in (whole, shape))
    index = np.array([7, 0, 0, -1, 3]).reshape(shape)
    expected = reference(data, index, updates, axis)
    np.testing.assert_allclose(run(mod, data, index, updates), expected, rtol=1e-6)


def test_a_constant_column():
    index = np.array([[7], [0], [0], [3], [1]])
    mod = module((5, 1), lambda bb, i: relax.const(index), (8, 1), (5, 1))
    folded = FoldBroadcastIndex()(mod)
    assert INDEX_PUT in operators(folded)
    assert "relax.reshape" not in operators(folded)
    updates = np.arange(5, dtype="float32").reshape(5, 1)
    data = np.zeros((8, 1), "float32")
    expected = reference(data, index, updates, 0)
    np.testing.assert_array_equal(run(mod, data, index, updates), expected)


def gather(*args):
    data, index, _ = args
    return relax.op.gather_elements(data, index, axis=0)


@pytest.mark.parametrize("width", [1, 4])
def test_reads(width):
    def make(bb, i):
        wide = bb.emit(relax.op.expand_dims(i, [1]))
        return bb.emit(relax.op.broadcast_to(wide, (5, width)))

    mod = module((5,), make, (8, width), (5, width), scatter=gather)
    folded = FoldBroadcastIndex()(mod)
    assert INDEX in operators(folded)
    assert "relax.broadcast_to" not in operators(folded)
    data = np.random.default_rng(5).normal(size=(8, width)).astype("float32")
    index = np.array([7, 0, 0, -8, 3])
    result = run(mod, data, index, np.zeros((5, width), "float32"))
    np.testing.assert_array_equal(result, data[index])


def test_a_column_that_is_written_to_in_between():
    """What was made of it before the write is not its contents after that."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((8, 1), "float32"))
    index = relax.Var("index", relax.TensorType((3, 1), "int32"))
    updates = relax.Var("updates", relax.TensorType((3, 1), "float32"))
    at = relax.Var("at", relax.TensorType((1,), "int64"))
    new = relax.Var("new", relax.TensorType((1, 1), "int32"))

    def add(rows):
        wide = builder.emit(relax.op.astype(index, "int64"))
        return builder.emit(scatter_elements(rows, wide, updates, 0, "add"))

    with builder.function("main", [data, index, updates, at, new]):
        # What is read after the write is not rewritten.
        first = builder.emit(relax.op.negative(add(data)))
        moved = builder.emit(index_put(index, [at], new, [0], in_place=True))
        builder.emit_func_output(relax.Tuple([add(first), moved]))
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
    column, one = np.array([[0], [1], [2]], "int32"), np.ones((3, 1), "float32")
    arrays = [np.zeros((8, 1), "float32"), column, one, np.array([1]), np.array([[7]], "int32")]
    result = machine["main"](*map(tvm.runtime.tensor, arrays))[0].numpy()
    np.testing.assert_array_equal(result[:, 0], [0, -1, 0, 0, 0, 0, 0, 1])


def column(bb, i):
    return bb.emit(relax.op.broadcast_to(bb.emit(relax.op.expand_dims(i, [1])), (5, 4)))


def test_negative_indices_keep_their_meaning():
    mod = module((5,), column, (8, 4), (5, 4), scatter=scatter_elements)
    folded = FoldBroadcastIndex()(mod)
    assert INDEX_PUT in operators(folded)
    with tvm_scatter.options(bounds="drop"):
        out = run(mod, np.zeros((8, 4), "float32"), np.array([-1] * 5), np.ones((5, 4), "float32"))
    assert not out.any()


def test_larger_updates_are_cropped():
    def scatter(data, index, updates):
        return scatter_elements(data, index, updates, reduction="add")

    mod = module((5,), column, (8, 4), (7, 6), scatter=scatter)
    assert INDEX_PUT in operators(FoldBroadcastIndex()(mod))
    rng = np.random.default_rng(2)
    data = rng.normal(size=(8, 4)).astype("float32")
    updates = rng.normal(size=(7, 6)).astype("float32")
    index = np.array([1, 1, 2, 3, 7])
    full = np.broadcast_to(index.reshape(5, 1), (5, 4))
    np.testing.assert_allclose(
        run(mod, data, index, updates), reference(data, full, updates[:5, :4], 0), rtol=1e-5
    )


def test_scalar_update():
    mod = module((5,), column, (8, 4), (), scatter=scatter_elements)
    assert INDEX_PUT in operators(FoldBroadcastIndex()(mod))
    out = run(mod, np.zeros((8, 4), "float32"), np.array([0, 1, 2, 2, 7]), np.array(3, "float32"))
    np.testing.assert_array_equal(np.nonzero(out[:, 0])[0], [0, 1, 2, 7])
    np.testing.assert_array_equal(out[[0, 1, 2, 7]], np.full((4, 4), 3))


def test_symbolic_sizes():
    n, k, s = (tvm.tirx.Var(name, "int64") for name in "nks")

    def make(bb, i):
        return bb.emit(relax.op.broadcast_to(bb.emit(relax.op.reshape(i, (k, 1))), (k, s)))

    mod = module((k,), make, (n, s), (k, s))
    assert INDEX_PUT in operators(FoldBroadcastIndex()(mod))
    rng = np.random.default_rng(3)
    data = rng.normal(size=(6, 3)).astype("float32")
    updates = rng.normal(size=(10, 3)).astype("float32")
    index = rng.integers(0, 6, 10)
    full = np.broadcast_to(index.reshape(10, 1), (10, 3))
    np.testing.assert_allclose(
        run(mod, data, index, updates), reference(data, full, updates, 0), rtol=1e-5
    )


def along_the_row(bb, i):
    return bb.emit(relax.op.broadcast_to(i, (5, 4)))


def along_a_part_of_the_row(bb, i):
    return bb.emit(relax.op.broadcast_to(bb.emit(relax.op.reshape(i, (5, 1, 1))), (5, 4, 3)))


@pytest.mark.parametrize(
    ("case", "mod"),
    [
        ("box smaller in one axis", module((5,), along_a_part_of_the_row, (8, 4, 6), (5, 4, 3))),
        ("index varies along the row", module((4,), along_the_row, (8, 4), (5, 4))),
        ("box smaller than data", module((5,), column, (8, 6), (5, 4))),
        ("column of wider data", module((5, 1), lambda bb, i: i, (8, 4), (5, 1))),
        ("read of a part of rows", module((5,), column, (8, 6), (5, 4), scatter=gather)),
        ("index is no broadcast", module((5, 4), lambda bb, i: i, (8, 4), (5, 4))),
        ("one axis", module((5,), lambda bb, i: bb.emit(relax.op.reshape(i, (5,))), (8,), (5,))),
        (
            "reshape mixes axes",
            module((20,), lambda bb, i: bb.emit(relax.op.reshape(i, (5, 4))), (8, 4), (5, 4)),
        ),
        (
            "broadcast along the axis",
            module((1, 1), lambda bb, i: bb.emit(relax.op.broadcast_to(i, (5, 4))), (8, 4), (5, 4)),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_left_alone(case, mod):
    assert FoldBroadcastIndex()(mod).same_as(mod)


def test_a_broadcast_that_is_read_elsewhere_stays():
    bb = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((8, 4), "float32"))
    index = relax.Var("index", relax.TensorType((5,), "int64"))
    updates = relax.Var("updates", relax.TensorType((5, 4), "float32"))
    with bb.function("main", [data, index, updates]):
        with bb.dataflow():
            wide = column(bb, index)
            first = bb.emit(relax.op.scatter_elements(data, wide, updates, axis=0))
            second = bb.emit(relax.op.scatter_elements(first, wide, updates, axis=0))
            out = bb.emit_output((second, wide))
        bb.emit_func_output(out)
    names = operators(FoldBroadcastIndex()(bb.get()))
    assert names.count(INDEX_PUT) == 2
    assert names.count("relax.broadcast_to") == 1


def test_two_scatters_share_a_broadcast():
    bb = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((8, 4), "float32"))
    index = relax.Var("index", relax.TensorType((5,), "int64"))
    updates = relax.Var("updates", relax.TensorType((5, 4), "float32"))
    with bb.function("main", [data, index, updates]):
        with bb.dataflow():
            wide = column(bb, index)
            first = bb.emit(relax.op.scatter_elements(data, wide, updates, axis=0))
            out = bb.emit_output(relax.op.scatter_elements(first, wide, updates, axis=0))
        bb.emit_func_output(out)
    names = operators(FoldBroadcastIndex()(bb.get()))
    assert names.count(INDEX_PUT) == 2
    assert "relax.broadcast_to" not in names


def test_a_block_keeps_its_variables_to_itself():
    """The 1-D tensor is local to a dataflow block and the scatter stands outside of it."""
    bb = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((8, 4), "float32"))
    index = relax.Var("index", relax.TensorType((5,), "int64"))
    updates = relax.Var("updates", relax.TensorType((5, 4), "float32"))
    with bb.function("main", [data, index, updates]):
        with bb.dataflow():
            shifted = bb.emit(relax.op.add(index, relax.const(1, "int64")))
            wide = bb.emit_output(column(bb, shifted))
        bb.emit_func_output(bb.emit(relax.op.scatter_elements(data, wide, updates, axis=0)))
    mod = bb.get()
    folded = FoldBroadcastIndex()(mod)
    relax.analysis.well_formed(folded)
    out = run(mod, np.zeros((8, 4), "float32"), np.arange(5), np.ones((5, 4), "float32"))
    np.testing.assert_array_equal(out[:, 0], [0, 1, 1, 1, 1, 1, 0, 0])


def test_nested_function():
    @I.ir_module
    class Nested:
        @R.function
        def main(
            data: R.Tensor((8, 4), "float32"),
            index: R.Tensor((5,), "int64"),
            updates: R.Tensor((5, 4), "float32"),
        ) -> R.Tensor((8, 4), "float32"):
            @R.function
            def inner(
                d: R.Tensor((8, 4), "float32"),
                i: R.Tensor((5,), "int64"),
                u: R.Tensor((5, 4), "float32"),
            ) -> R.Tensor((8, 4), "float32"):
                column = R.expand_dims(i, axis=[1])
                wide = R.broadcast_to(column, (5, 4))
                out = R.scatter_elements(d, wide, u, axis=0)
                return out

            return inner(data, index, updates)

    folded = FoldBroadcastIndex()(Nested)
    relax.analysis.well_formed(folded)
    assert INDEX_PUT in operators(folded)
    assert "relax.broadcast_to" not in operators(folded)


def test_inert_when_off_or_without_a_strategy():
    mod = module((5,), column, (8, 4), (5, 4))
    with tvm_scatter.options(enabled=False):
        assert FoldBroadcastIndex()(mod).same_as(mod)
    with tvm.target.Target("c"):
        assert FoldBroadcastIndex()(mod).same_as(mod)


def test_modules_without_scatter_compile_to_the_same_code():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            unread = bb.emit(relax.op.broadcast_to(x, (3, 5)))
            bb.emit(relax.op.add(unread, unread))
            out = bb.emit_output(relax.op.exp(x))
        bb.emit_func_output(out)
    ours = tvm.compile(bb.get(), target=tvm.target.Target("llvm"))
    tvm_scatter.uninstall()
    try:
        stock = tvm.compile(bb.get(), target=tvm.target.Target("llvm"))
    finally:
        tvm_scatter.install()
    assert ours.as_text() == stock.as_text()
    # LLVM's text names the types of its alias analysis by their addresses in this process.
    ours_code, stock_code = (
        re.sub("0x[0-9a-f]+", "", built.mod.imports[0].inspect_source()) for built in (ours, stock)
    )
    assert ours_code == stock_code


def test_legalization_survives_a_reload():
    mod = module((5,), column, (8, 4), (5, 4))
    importlib.reload(tvm_scatter.install.__globals__["legalize"])
    tvm_scatter.uninstall()
    tvm_scatter.install()
    with tvm_scatter.options(enabled=False):
        stock = tvm.compile(mod, target="llvm").as_text()
    tvm_scatter.uninstall()
    try:
        assert tvm.compile(mod, target="llvm").as_text() == stock
    finally:
        tvm_scatter.install()
    assert "scatter_" in tvm.compile(mod, target="llvm").as_text()


def test_pipelines_are_restored_exactly():
    def in_force():
        named = {name: tvm_pipelines.PIPELINE_MAP[name] for name in tvm_pipelines.PIPELINE_MAP}
        return named, tvm_pipelines.get_default_pipeline, relax.get_default_pipeline

    tvm_scatter.uninstall()
    stock = in_force()
    assert stock[1] is stock[2]
    assert stock[1].__module__ == "tvm.relax.pipeline"
    tvm_scatter.install()
    tvm_scatter.install()
    importlib.reload(tvm_scatter.pipelines)
    importlib.reload(tvm_scatter.install.__globals__["legalize"])
    tvm_scatter.uninstall()
    tvm_scatter.install()
    assert in_force() != stock
    tvm_scatter.uninstall()
    assert in_force() == stock
    tvm_scatter.install()


@pytest.mark.parametrize("target", [None, "llvm", tvm.target.Target("llvm")])
def test_pipeline_serves_an_uninstalled_package(target):
    mod = module((5,), column, (8, 4), (5, 4))
    tvm_scatter.uninstall()
    try:
        pipeline = tvm_scatter.pipeline(target)
    finally:
        tvm_scatter.install()
    executable = tvm.compile(mod, target=tvm.target.Target("llvm"), relax_pipeline=pipeline)
    assert "broadcast_to" not in executable.as_text()
