"""A plan is pure: it changes nothing, comes out the same again, and is what is made."""

from __future__ import annotations

import re

import numpy as np
import programs
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_scatter
from tvm_scatter.lowering.batched import is_batch
from tvm_scatter.lowering.plan import plan
from tvm_scatter.lowering.plan_read import plan_read
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.lowering.target import target_of_call
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.scatter_call import is_scatter

LLVM = tvm.target.Target("llvm")
CUDA = tvm.target.Target("nvidia/nvidia-h100")
OTHER = tvm.target.Target("c")


def tensor(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def index(name, *shape, dtype="int64"):
    return tensor(name, *shape, dtype=dtype)


N, M, K, P, Q = (tvm.tirx.Var(name, "int64") for name in "nmkpq")
PAIR = relax.Var("pair", relax.TupleType([relax.TensorType((7,), "int64")] * 2))
RANGES = [(0, 0, 2, 3), (1, 1, 9, 4)]
#: Calls that need operands of every kind that is derived from others.
CALLS = {
    "nothing": ops.scatter_elements(tensor("d", 9, 4), index("i", 9, 4), tensor("u", 9, 4), 0),
    "mean": ops.scatter_elements(tensor("d", 9, 4), index("i", 9, 4), tensor("u", 9, 4), 0, "mean"),
    "signed": ops.index_put(tensor("d", 9, 4), [index("i", 5, dtype="uint64")], tensor("u", 5, 4)),
    "cast": ops.index_put(
        tensor("d", 9, 4), [index("i", 5), index("j", 5, dtype="int32")], tensor("u", 5)
    ),
    "broadcast": ops.index_put(
        tensor("d", 9, 4, 3), [index("i", 5, 1), index("j", 2)], tensor("u", 5, 2, 3)
    ),
    "empty": ops.index_put(tensor("d", 9, 4, 3), [index("i", 5, 1), index("j", 0)], tensor("u", 3)),
    "part of a row": ops.index_put(
        tensor("d", 9, 4, 3, 2), [index("i", 5)], tensor("u", 4, 1, 2), [0]
    ),
    "crop": ops.scatter_elements(tensor("d", 9, 4), index("i", 5, 3), tensor("u", 6, 4), 1),
    "apart": ops.index_put(
        tensor("d", 9, 4, 3), [index("i", 5), index("j", 5)], tensor("u", 4), [0, 2]
    ),
    "into all": ops.scatter_nd(tensor("d", 9, 4), index("i", 5, 0), tensor("u", 5, 9, 4), "add"),
    "sizes of a box": ops.scatter_elements(
        tensor("d", N, M), index("i", K, P, dtype="uint64"), tensor("u", Q, Q), 0
    ),
    "sizes of tuples": ops.scatter_nd(tensor("d", N, M), index("i", K, 1), tensor("u", P, Q)),
    "sizes of rows": ops.index_put(tensor("d", N, M), [index("i", K)], tensor("u", P, Q)),
    "field": relax.op.index_put(tensor("d", 9, 4), PAIR, tensor("u", 7), True),
    "ranges": ops.copy_ranges(
        tensor("d", 20, 4), [tensor("a", 4, 4), tensor("b", 5, 4)], RANGES, 0
    ),
    "left out": ops.index_put(
        tensor("d", 9, 4, 3),
        [index("i", 5), index("j", 5)],
        tensor("u", 4),
        [0, 2],
        leaves_out=True,
    ),
    "none of all left out": ops.scatter_nd(
        tensor("d", 9, 4), index("i", 5, 0), tensor("u", 5, 9, 4), "add", leaves_out=True
    ),
    "nothing to write": ops.index_put(
        tensor("d", 9, 0), [index("i", 5, dtype="uint64")], tensor("u", 5, 0)
    ),
}


#: Those that equal no operator of TVM.
NOT_OF_TVM = ("mean", "crop", "sizes of a box")
X, ROWS, COLUMNS = tensor("x", 9, 4), index("i", 5), index("j", 5, dtype="int32")
#: Calls that read, likewise.
READS = {
    "take": relax.op.take(X, ROWS, 0),
    "known": relax.op.take(X, relax.const(np.array([1, -2]), "int64"), 0),
    "tuple": relax.op.index_tensor(X, relax.Tuple([ROWS, COLUMNS])),
    "field": relax.op.index_tensor(X, PAIR),
    "sizes of a box": relax.op.gather_elements(tensor("x", N, M), index("i", K, P), 0),
    "ours": read_ops.index(X, [COLUMNS], [1]),
    "nothing": relax.op.take(tensor("x", 9, 0), ROWS, 0),
}


def module(build):
    builder = relax.BlockBuilder()
    build(builder)
    return builder.get()


def module_of(call):
    """A function of one call, of its variables."""

    def build(builder):
        with builder.function("main", list(relax.analysis.free_vars(call))):
            with builder.dataflow():
                output = builder.emit_output(builder.emit(call))
            builder.emit_func_output(output)

    return module(build)


def after_passes(mod, target):
    with target:
        passes = tvm_scatter.passes.passes(tvm_scatter.current_options())
        return tvm.transform.Sequential(passes)(mod)


def is_planned(value):
    return is_scatter(value) or is_batch(value)


def calls_of(mod, wanted=is_planned):
    """The scatters of a module, those that are put together as one; or other calls."""
    found = []

    def visit(value):
        if wanted(value):
            found.append(value)

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def plans_of(mod, target):
    options = tvm_scatter.current_options()
    with target:
        return [plan(call, target_of_call(call), options) for call in calls_of(mod)]


def check_pure(mod, target):
    before = mod.script()
    functions = len(mod.functions)
    first, second = plans_of(mod, target), plans_of(mod, target)
    assert first and first == second
    assert mod.script() == before and len(mod.functions) == functions


def called(mod):
    """The functions that are called, in order, without the numbers of those of one name."""
    names = []

    def visit(value):
        is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
        if is_call and value.op.name.startswith("relax.call_tir"):
            names.append(re.sub(r"\d+$", "", value.args[0].name_hint))

    relax.analysis.post_order_visit(mod["main"], visit)
    return names


def legalized(mod, target):
    with target:
        return relax.transform.LegalizeOps()(mod)


def made_of(mod, target):
    """What the functions are called that compute scatters."""
    names = called(legalized(mod, target))
    return [name for name in names if name == "copy_ranges" or name.startswith("scatter_")]


def explained(mod, target):
    """What they are called according to what is explained."""
    names = []
    with tvm_scatter.options(fold_broadcast_index=False, bulk=False, in_place=False, batch=False):
        explanations = tvm_scatter.explain(mod, target)
    for explanation in explanations:
        branches = dict.fromkeys(choice.implementation for choice in explanation.choices)
        name = "_or_".join(branches)
        if explanation.problem is not None and branches:
            name = f"scatter_{explanation.problem.reduction}_{name}"
        if name:
            names.append(name)
    return names


@pytest.mark.parametrize("bounds", ["raise", "drop", "trust"])
@pytest.mark.parametrize("target", [LLVM, CUDA], ids=["llvm", "cuda"])
@pytest.mark.parametrize("name", CALLS)
def test_operators(name, target, bounds):
    with tvm_scatter.options(bounds=bounds):
        mod = module_of(CALLS[name])
        check_pure(mod, target)
        assert explained(mod, target) == made_of(mod, target)


@pytest.mark.parametrize("name", [name for name in CALLS if name not in NOT_OF_TVM])
def test_operators_without_a_strategy(name):
    check_pure(module_of(CALLS[name]), OTHER)


def test_ranges_without_a_strategy():
    mod = module_of(CALLS["ranges"])
    assert explained(mod, OTHER) == made_of(mod, OTHER) == ["copy_ranges"]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    programs.programs(),
    st.sampled_from([LLVM, CUDA]),
    st.sampled_from(["raise", "drop"]),
    st.booleans(),
)
def test_random_programs(program, target, bounds, dataflow):
    mod = module(lambda builder: programs.build(program, builder, dataflow))
    with tvm_scatter.options(bounds=bounds, batch=True):
        mod = after_passes(mod, target)
        if calls_of(mod):
            check_pure(mod, target)
        assert explained(mod, target) == made_of(mod, target)


@pytest.mark.parametrize("bounds", ["raise", "drop", "trust"])
@pytest.mark.parametrize("target", [LLVM, CUDA, OTHER], ids=["llvm", "cuda", "c"])
@pytest.mark.parametrize("name", READS)
def test_reads(name, target, bounds):
    mod = module_of(READS[name])
    before = mod.script()
    (call,) = calls_of(mod, is_read)
    with tvm_scatter.options(bounds=bounds):
        options = tvm_scatter.current_options()
        assert plan_read(call, target, options) == plan_read(call, target, options)
    assert mod.script() == before


@pytest.mark.parametrize("name", ["empty", "nothing to write"])
def test_nothing_to_write_without_a_strategy(name):
    mod = module_of(CALLS[name])
    (explanation,) = tvm_scatter.explain(mod, OTHER)
    assert explanation.reason == "there is nothing to write"
    assert called(legalized(mod, OTHER)) == []


def test_tuples_of_no_index_write_to_all_of_the_data():
    assert called(legalized(module_of(CALLS["into all"]), OTHER))


@pytest.mark.parametrize("name", NOT_OF_TVM)
def test_what_no_operator_of_tvm_equals_is_refused(name):
    """It is said where it is explained, and is no task; only compiling it is an error."""
    mod, refused = module_of(CALLS[name]), "no implementation for target 'c'"
    (explanation,) = tvm_scatter.explain(mod, OTHER)
    assert refused in explanation.reason and not explanation.choices
    assert tvm_scatter.extract_tasks(mod, OTHER) == []
    with pytest.raises(tvm_scatter.ScatterError, match=refused):
        legalized(mod, OTHER)


def test_an_index_of_two_axes_is_made_once():
    wide = index("i", 7, 1, dtype="int32")
    call = ops.index_put(
        tensor("d", 20, 20, 3), [wide, wide, index("j", 7, 5)], tensor("u", 1), [0, 1, 2], "add"
    )
    names = called(legalized(module_of(call), LLVM))
    assert names.count("cast_index") == names.count("broadcast_to") == 1


def test_scatters_put_together_are_checked_where_that_is_asked_for_later():
    data = tensor("d", 9, 4)
    indices = [index("i", 5), index("j", 5)]
    updates = [tensor("u", 5, 4), tensor("v", 5, 4)]

    def build(builder):
        with builder.function("main", [data, *indices, *updates]):
            with builder.dataflow():
                first, second = (
                    builder.emit(ops.index_put(data, [at], rows))
                    for at, rows in zip(indices, updates, strict=True)
                )
                output = builder.emit_output(relax.Tuple([first, second]))
            builder.emit_func_output(output)

    with tvm_scatter.options(bounds="drop", batch=True):
        mod = after_passes(module(build), LLVM)
    assert [is_batch(call) for call in calls_of(mod)] == [True]
    with tvm_scatter.options(bounds="raise"):
        machine = relax.VirtualMachine(tvm.compile(mod, LLVM), tvm.cpu())
    good, bad = np.arange(5), np.array([0, 1, 9, 3, 4])
    rows = np.ones((5, 4), "float32")

    def run(*indices):
        arrays = [np.zeros((9, 4), "float32"), *indices, rows, rows]
        return machine["main"](*map(tvm.runtime.tensor, arrays))

    assert [result.numpy().sum() for result in run(good, good)] == [20, 20]
    for indices in ((good, bad), (bad, good)):
        with pytest.raises(IndexError, match=r"index 9 at position \(2\)"):
            run(*indices)
