"""What TVM prints of a module, TVM's parser reads again: each operator with each attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from harness import relax_function
from tvm import relax

import tvm_scatter
from tvm_scatter.lowering.batched import batch
from tvm_scatter.ops import expectations, read_ops
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.ops.grouped_product import grouped_product
from tvm_scatter.ops.host_numbers import on_host
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.suppression import kept_boxes

DATA = np.zeros((8, 4), "float32")
INDEX = np.zeros((3,), "int64")
WIDE = np.zeros((3, 4), "int64")
ROWS = np.zeros((3, 4), "float32")
TUPLES = np.zeros((3, 1), "int64")
STACK = np.zeros((1, 8, 4), "float32")
WINNERS = np.zeros((8,), "int32")
TEXT = 'somebody\'s "own"\n\\name'

Build = Callable[..., Any]
#: A call of each operator that scatters, and its operands.
SCATTERS: dict[str, tuple[Build, list[np.ndarray[Any, Any]]]] = {
    "scatter_elements": (lambda d, i, u: ops.scatter_elements(d, i, u, -1), [DATA, WIDE, ROWS]),
    "index_put": (lambda d, i, u: ops.index_put(d, [i], u, [0]), [DATA, INDEX, ROWS]),
    "two indices": (lambda d, i, u: ops.index_put(d, [i, i], u), [DATA, INDEX, ROWS[:, 0]]),
    "scatter_nd": (lambda d, i, u: ops.scatter_nd(d, i, u), [DATA, TUPLES, ROWS]),
    "copy_ranges": (
        lambda d, u: ops.copy_ranges(d, [u, u], [(0, 0, 2, 1), (1, 1, 5, 2)], 0),
        [DATA, ROWS],
    ),
}
#: A call of each other operator.
OTHERS: dict[str, tuple[Build, list[np.ndarray[Any, Any]]]] = {
    "select_rows": (lambda d, w: ops.select_rows(d, w, [d, d]), [STACK, WINNERS]),
    "index": (
        lambda d, i: read_ops.index(d, [i], [1], wrap_negative=False, operator=TEXT),
        [DATA, INDEX],
    ),
    "gather_elements": (lambda d, i: read_ops.gather_elements(d, i, 0), [DATA, WIDE]),
    "gather_nd": (lambda d, i: read_ops.gather_nd(d, i, 1), [DATA, np.zeros((8, 1), "int64")]),
    "expect_sizes": (
        lambda d: expectations.expect_sizes(d, [8], [3], shape=[8, 4], what="it", operator=TEXT),
        [DATA],
    ),
    "expect_sizes of one": (
        lambda d: expectations.expect_sizes(d, [], [], what="it", operator="x"),
        [DATA],
    ),
    "expect_count": (
        lambda t: expectations.expect_count(
            t, 3, expectations.EACH_OR_ONE, what="values", operator="index_put"
        ),
        [INDEX],
    ),
    "expect_numbers": (
        lambda d, t: expectations.expect_numbers(
            d, t, expectations.EQUAL, limit=3, what="it", operator=TEXT
        ),
        [DATA, INDEX],
    ),
    "expect_numbers of the host": (
        lambda d: expectations.expect_numbers(
            d, tvm.tirx.IntImm("int64", 1), expectations.ASSERTED, what=TEXT, operator="x"
        ),
        [DATA],
    ),
    "expect_indices": (
        lambda d, i: expectations.expect_indices(read_ops.index(d, [i], [0])),
        [DATA, INDEX],
    ),
    "on_host": (on_host, [INDEX]),
    "true_positions": (true_positions, [DATA > 0]),
    "order": (lambda i: tvm_scatter.order(i, 8, wrap_negative=False, operator=TEXT), [INDEX]),
    "kept_boxes": (
        lambda b, o, c: kept_boxes(b, o, c, overlap=0.5, most=2),
        [np.zeros((1, 3, 4), "float32"), np.zeros((1, 2, 3), "int64"), np.ones((1, 2, 3), "bool")],
    ),
    "grouped_product": (
        grouped_product,
        [np.ones((5, 3), "float32"), np.ones((2, 3, 4), "float32"), np.array([2, 5])],
    ),
    "batch": (
        lambda d, i, u: batch([ScatterCall.from_call(ops.index_put(d, [i], u))] * 2, [u]),
        [DATA, INDEX, ROWS],
    ),
    "batch of tuples": (
        lambda d, i, u: batch([ScatterCall.from_call(ops.scatter_nd(d, i, u))]),
        [DATA, TUPLES, ROWS],
    ),
}


def requests() -> Iterator[tuple[str, Any]]:
    """Each attribute that scatters have, with another value than by default."""
    operands = (relax.Var(name, relax.TensorType([2, 2])) for name in "diu")
    attributes = ops.scatter_nd(*operands).attrs
    for name, value in attributes.items():
        yield str(name), {"operator": TEXT, "reduction": "mean"}.get(name, not value)


def asking(build: Build, **wanted: Any) -> Build:
    """A call that asks for more."""
    return lambda *parameters: ScatterCall.from_call(build(*parameters)).replace(**wanted).to_call()


def waiting(build: Build) -> Build:
    """A call with a tensor that must be computed before it."""
    return lambda data, *others: asking(build, earlier=(others[-1],))(data, *others)


def module(build: Build, arrays: list[np.ndarray[Any, Any]], symbolic: bool) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    relax_function(builder, "main", build, arrays, symbolic)
    return builder.get()


def read(text: str) -> tvm.IRModule:
    return tvm.script.from_source(text)


def check_round_trip(mod: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(read(mod.script(show_meta=True)), mod, map_free_vars=False)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", [*SCATTERS, *OTHERS])
def test_each_operator_is_read_again(name: str, symbolic: bool) -> None:
    build, arrays = (SCATTERS | OTHERS)[name]
    if symbolic and name in ("scatter_nd", "gather_nd", "select_rows", "batch of tuples"):
        pytest.skip("its shapes are known")
    check_round_trip(module(build, arrays, symbolic))


@pytest.mark.parametrize("name", SCATTERS)
def test_each_attribute_is_read_again(name: str) -> None:
    build, arrays = SCATTERS[name]
    for attribute, value in requests():
        check_round_trip(module(asking(build, **{attribute: value}), arrays, False))
    check_round_trip(module(waiting(build), arrays, False))


def test_every_operator_has_a_case() -> None:
    every = {name for name in tvm.ir.Op.list_op_names() if name.startswith("relax.tvm_scatter.")}
    shown = {f"relax.tvm_scatter.{name}" for name in (*SCATTERS, *OTHERS)}
    assert every <= shown


@pytest.mark.parametrize("name", ["GraphSAGE max", "Mask R-CNN levels"])
def test_imported_models_are_read_again(name: str) -> None:
    pytest.importorskip("torch_geometric")
    from demo_programs import imported

    assert "R.tvm_scatter." in imported(name).script()
    check_round_trip(imported(name))


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_constants_that_are_no_numbers_are_read_again(number: float, dtype: str) -> None:
    added = DATA.astype(dtype)
    check_round_trip(module(lambda x: relax.op.add(x, relax.const(number, dtype)), [added], False))


HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((8, 4), "float32"), i: R.Tensor((3,), "int64"), v: R.Tensor((3, 4), "float32")
    ):
        with R.dataflow():
            out = {}
            R.output(out)
        return out
"""


def test_a_written_scatter_asks_for_nothing_by_default() -> None:
    mod = read(HEAD.format('R.tvm_scatter.index_put(x, (i,), v, axes=[0], reduction="sum")'))
    call = mod["main"].body.blocks[0].bindings[0].value
    found = ScatterCall.from_call(call)
    assert found == ScatterCall(
        form=ops.INDEX_PUT,
        data=found.data,
        indices=found.indices,
        updates=found.updates,
        axes=(0,),
        reduction="add",
        operator="index_put",
    )
    assert tvm.compile(mod, "llvm")


def test_indices_may_be_a_variable() -> None:
    text = HEAD.replace("out = {}", "pair = (i,)\n            out = {}")
    mod = read(text.format("R.tvm_scatter.index_put(x, pair, v, axes=[0])"))
    check_round_trip(mod)
    assert tvm.compile(mod, "llvm")


@pytest.mark.parametrize(("edited", "message"), [
    ("index_put(x, (i,), v)", "R.tvm_scatter.index_put: missing a required argument: 'axes'"),
    ("index_put(x, (i,), axes=[0])", "missing a required argument: 'updates'"),
    ("index_put(x, (i,), v, axes=[0], reductoin='add')", "unexpected keyword argument 'reductoin'"),
    ("scatter_nd(x, i, v, reduction='median')", "scatter_nd: unknown reduction 'median'"),
    ("index(x, (i,), axes=[0], operator='x')", "missing a required argument: 'wrap_negative'"),
    ("index_put(x, (i,), v, axes=[7])", "index_put: axes[0] 7 is"),
    ("index_put(x, (i,), v, axes=0)", "index_put: axes must be a list"),
    ("copy_ranges(x, (v,), axis=2, ranges=[0, 0, 0, 3])", "copy_ranges: axis 2 is out of range"),
    *(
        (f"copy_ranges(x, (v,), axis=0, ranges={ranges})", f"copy_ranges: {message}")
        for ranges, message in (
            ([0, 1, 0, 3], "ranges[0] copies from source 0 3 positions from 1 on; it has 3 along"),
            ([0, 0, 6, 3], "ranges[0] writes to the data 3 positions from 6 on; it has 8 along"),
            ([0, 0, -1, 1], "ranges[0] writes to the data 1 positions from -1 on; it has 8 along"),
            ([0, 2, 0, -1], "ranges[0] copies from source 0 -1 positions from 2 on; it has 3"),
            ([1, 0, 0, 1], "ranges[0] copies source 1, but there are 1"),
            ([0, 0, 4, 2, 0, 2, 5, 1], "ranges[1] overlaps in the data with a range before it"),
            ([0, 0, 4], "ranges must be 4 numbers each, but there are 3"),
        )
    ),
    ("scatter_add(x, i, v)", "has no attribute 'scatter_add'"),
])  # fmt: skip
def test_errors_say_what_is_wrong(
    edited: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(tvm.error.DiagnosticError) as raised:
        read(HEAD.format(f"R.tvm_scatter.{edited}"))
    assert message in f"{raised.value}{capsys.readouterr()}".replace("\\'", "'")


def test_decorated_python_is_read_too() -> None:
    from tvm.script import ir as I
    from tvm.script import relax as R

    @I.ir_module
    class Decorated:
        @R.function
        def main(
            x: R.Tensor((8, 4), "float32"),
            w: R.Tensor((3,), "int32"),
        ):
            with R.dataflow():
                out = R.tvm_scatter.index(x, (w,), axes=[0], wrap_negative=True, operator="index")
                R.output(out)
            return out

    check_round_trip(Decorated)


def test_uninstall_gives_the_parser_back() -> None:
    text = module(*OTHERS["gather_nd"], False).script()
    tvm_scatter.uninstall()
    try:
        with pytest.raises(tvm.error.DiagnosticError):
            read(text)
    finally:
        tvm_scatter.install()
    assert read(text)
