"""What callers get wrong: one sentence each, never an error of Python or of TVM, or a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_scatter
from tvm_scatter import ScatterError
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops


def variable(name: str, shape: Any, dtype: str) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


DATA = variable("data", (4, 3), "float32")
INDEX = variable("index", (2,), "int64")
WIDE = variable("wide", (2, 3), "int64")
UPDATES = variable("updates", (2, 3), "float32")
PAIR = relax.Var("pair", relax.TupleType([DATA.ty, DATA.ty]))
SYMBOLIC = variable("symbolic", (2, tvm.tirx.Var("m", "int64")), "int64")
RUN = (0, 0, 0, 2)

CONSTRUCTORS: dict[str, Callable[..., relax.Expr]] = {
    "scatter_elements": lambda data=DATA, index=WIDE, updates=UPDATES, axis=0: ops.scatter_elements(
        data, index, updates, axis
    ),
    "index_put": lambda data=DATA, index=INDEX, updates=UPDATES, axis=0: ops.index_put(
        data, [index], updates, [axis]
    ),
    "scatter_nd": lambda data=DATA, index=WIDE, updates=UPDATES, axis=0: ops.scatter_nd(
        data, index, updates
    ),
    "copy_ranges": lambda data=DATA, index=None, updates=UPDATES, axis=0: ops.copy_ranges(
        data, [updates], [RUN], axis
    ),
    "index": lambda data=DATA, index=INDEX, updates=None, axis=0: read_ops.index(
        data, [index], [axis]
    ),
    "gather_elements": lambda data=DATA, index=WIDE, updates=None, axis=0: read_ops.gather_elements(
        data, index, axis
    ),
    "gather_nd": lambda data=DATA, index=WIDE, updates=None, axis=0: read_ops.gather_nd(
        data, index, axis
    ),
}
NO_UPDATES = ("index", "gather_elements", "gather_nd")
NO_TENSORS = {
    "nothing": None,
    "list": [1.0],
    "array": np.ones((4, 3), "float32"),
    "text": "data",
    "number": 7,
    "tuple": PAIR,
    "shape": relax.ShapeExpr([2]),
    "operator": tvm.ir.Op.get("relax.add"),
}


@pytest.mark.parametrize("given", NO_TENSORS.values(), ids=NO_TENSORS)
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_what_is_no_tensor_is_no_operand(name: str, given: Any) -> None:
    operands = {"data": "data", "index": "ind(ex|ices)", "updates": "updates|values|sources"}
    for operand, called in operands.items():
        if (operand == "updates" and name in NO_UPDATES) or (operand, name) == (
            "index",
            "copy_ranges",
        ):
            continue
        with pytest.raises(ScatterError, match=rf"^{name}: ({called})(\[0\])? is .*") as raised:
            CONSTRUCTORS[name](**{operand: given})
        assert_one_sentence(raised.value)


@pytest.mark.parametrize("axis", [None, "x", 1.5, [0], True, 2**70, 2, -3])
@pytest.mark.parametrize("name", [name for name in CONSTRUCTORS if name != "scatter_nd"])
def test_what_is_no_axis(name: str, axis: Any) -> None:
    with pytest.raises(ScatterError, match=rf"^{name}: (axis|axes\[0\]|batch_dims) ") as raised:
        CONSTRUCTORS[name](axis=axis)
    assert_one_sentence(raised.value)


def test_axes_are_integers_of_any_kind() -> None:
    for axis in (1, np.int32(1), np.array(1)[()], tvm.tirx.IntImm("int64", 1), -1):
        assert ops.scatter_elements(DATA, WIDE, UPDATES, axis).attrs["axis"] == 1
        assert list(read_ops.index(DATA, [INDEX], [axis]).attrs["axes"]) == [1]


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "no axis for None": (lambda: ops.index_put(DATA, [None, INDEX], UPDATES), "indices[0] is None"),
    "a bare index": (lambda: ops.index_put(DATA, INDEX, UPDATES), "indices must be a list"),
    "a bare index to read": (lambda: read_ops.index(DATA, INDEX, [0]), "indices must be a list"),
    "no indices": (lambda: ops.index_put(DATA, None, UPDATES), "indices must be a list"),
    "a bare axis": (lambda: ops.index_put(DATA, [INDEX], UPDATES, 0), "axes must be a list"),
    "a name for axes": (lambda: ops.index_put(DATA, [INDEX], UPDATES, "x"), "axes must be a list"),
    "no axes to read": (lambda: read_ops.index(DATA, [INDEX], None), "axes must be a list"),
    "axes twice": (lambda: read_ops.index(DATA, [INDEX, INDEX], [0, -2]), "distinct, ascending"),
    "a bare source": (lambda: ops.copy_ranges(DATA, UPDATES, [RUN], 0), "sources must be a list"),
    "no ranges to copy": (
        lambda: ops.copy_ranges(DATA, [UPDATES], None, 0),
        "ranges must be a list",
    ),
    "a short range": (lambda: ops.copy_ranges(DATA, [UPDATES], [(0, 1)], 0), "ranges[0] is (0, 1)"),
    "no reduction": (
        lambda: ops.scatter_nd(DATA, WIDE, UPDATES, None),
        "unknown reduction None",
    ),
    "reductions": (lambda: ops.scatter_nd(DATA, WIDE, UPDATES, ["add"]), "reduction ['add']"),
    "tuples of a size to come": (
        lambda: read_ops.gather_nd(DATA, SYMBOLIC),
        "the last axis of indices",
    ),
    "written tuples": (
        lambda: ops.scatter_nd(DATA, SYMBOLIC, UPDATES),
        "scatter_nd: the last axis of indices of type",
    ),
    "tuples too long": (lambda: read_ops.gather_nd(DATA, WIDE), "tuples of 3 indices"),
    "an empty module": (lambda: tvm_scatter.buffers(None), "it takes an IRModule, not NoneType"),
    "no function": (
        lambda: tvm_scatter.buffers(tvm.IRModule(), None, "nope"),
        "there is no function 'nope'",
    ),
    "a number for a function": (
        lambda: tvm_scatter.buffers(tvm.IRModule(), None, 3),
        "there is no function 3",
    ),
    "no machine": (lambda: tvm_scatter.graphed(None, "main", []), "not NoneType"),
    "one number for a range": (
        lambda: tvm_scatter.extract_tasks(tvm.IRModule(), "llvm", {"n": 3}),
        "the range 3 of 'n'",
    ),
    "words for a range": (
        lambda: tvm_scatter.extract_tasks(tvm.IRModule(), "llvm", {"n": ("a", "b")}),
        "the range ('a', 'b') of 'n'",
    ),
    "no ranges": (
        lambda: tvm_scatter.extract_tasks(tvm.IRModule(), "llvm", 3),
        "ranges must map",
    ),
    "numbers for names": (
        lambda: tvm_scatter.extract_tasks(tvm.IRModule(), "llvm", {3: (1, 2), "n": (1, 2)}),
        "no scatter has a symbolic size",
    ),
    "CUDA graphs of a CPU": (
        lambda: tvm_scatter.pipeline("llvm", cuda_graph=True),
        "cuda_graph=True: target llvm has no CUDA graphs",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_arguments(case: str) -> None:
    call, about = ODD[case]
    with pytest.raises(ScatterError) as raised:
        call()
    assert about in str(raised.value)
    assert_one_sentence(raised.value)


@pytest.mark.parametrize("name", [3, None, "nope"])
def test_graphed_takes_a_function_of_the_machine(name: Any) -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", [DATA]):
        builder.emit_func_output(builder.emit(relax.op.add(DATA, DATA)))
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    with pytest.raises(ScatterError, match=f"graphed: there is no function {name!r}"):
        tvm_scatter.graphed(machine, name, [])
    with pytest.raises(ScatterError, match="graphed: example_inputs must be a list"):
        tvm_scatter.graphed(machine, "main", None)


@pytest.mark.parametrize("target", ["banana", "", 3, {}, {"kind": "banana"}, "llvm -mcpu=x", b"x"])
def test_what_is_no_target(target: Any) -> None:
    for function in (
        lambda target: tvm_scatter.explain(tvm.IRModule(), target),
        lambda target: tvm_scatter.extract_tasks(tvm.IRModule(), target),
        tvm_scatter.pipeline,
    ):
        with pytest.raises(ScatterError, match="target ") as raised:
            function(target)
        assert_one_sentence(raised.value)


def test_targets_of_every_kind() -> None:
    for target in ("llvm", {"kind": "llvm"}, '{"kind": "llvm"}', "sm_90", tvm.target.Target("c")):
        assert not tvm_scatter.explain(tvm.IRModule(), target)


def assert_one_sentence(error: ScatterError) -> None:
    text = str(error)
    assert text.endswith(".") and "\n" not in text and len(text) < 300
