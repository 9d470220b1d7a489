"""Where a default schedule of TVM's fails, the model compiles all the same, and is right."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target
from harness import device_of, target_of
from tvm import relax
from tvm.s_tir import dlight
from tvm.script import tirx as T

import tvm_scatter
from tvm_scatter.schedules.gemv_order import mixes_up_rows
from tvm_scatter.schedules.guarded import GuardedDefaultSchedule

#: Rows of so many elements are TVM's to schedule.
SIZE = 51


class Raises(dlight.ScheduleRule):
    """A rule that is not made for what it gets."""

    def apply(self, func, target, tunable):
        raise AttributeError("no such attribute")


@T.prim_func(s_tir=True)
def doubled(A: T.Buffer((SIZE, SIZE), "float32"), B: T.Buffer((SIZE, SIZE), "float32")):
    for i, j in T.grid(SIZE, SIZE):
        with T.sblock("double"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            B[v_i, v_j] = A[v_i, v_j] * T.float32(2)


@T.prim_func(s_tir=True)
def triangle(A: T.Buffer((SIZE, SIZE), "float32"), B: T.Buffer((SIZE, SIZE), "float32")):
    for i, j in T.grid(SIZE, SIZE):
        with T.sblock("zero"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            B[v_i, v_j] = T.float32(0)
    for i in range(SIZE):
        for j in range(i + 1):
            with T.sblock("copy"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j]


@T.prim_func(s_tir=True)
def scan(A: T.Buffer((SIZE, SIZE), "float32"), B: T.Buffer((SIZE, SIZE), "float32")):
    for i, j in T.grid(SIZE, SIZE):
        with T.sblock("add"):
            v_i = T.axis.spatial(SIZE, i)
            v_j = T.axis.opaque(SIZE, j)
            T.reads(A[v_i, v_j], B[v_i, 0:SIZE])
            T.writes(B[v_i, v_j])
            before = T.if_then_else(v_j > 0, B[v_i, v_j - 1], T.float32(0))
            B[v_i, v_j] = A[v_i, v_j] + before


@T.prim_func(s_tir=True)
def without_blocks(A: T.Buffer((SIZE, SIZE), "float32"), B: T.Buffer((SIZE, SIZE), "float32")):
    for i, j in T.grid(SIZE, SIZE):
        B[i, j] = A[i, j] + T.float32(1)


FUNCTIONS = {
    "doubled": (doubled, lambda a: 2 * a),
    "triangle": (triangle, np.tril),
    "scan": (scan, lambda a: np.cumsum(a, axis=1, dtype="float32")),
    "without_blocks": (without_blocks, lambda a: a + 1),
}


def scheduled(function, *rules):
    with cuda_target("sm_90"):
        return GuardedDefaultSchedule(*rules)(tvm.IRModule({"main": function}))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rules", [(), (Raises(),), (Raises(), dlight.gpu.Fallback())])
@pytest.mark.each_device
def test_the_next_schedule_is_right(name, rules, device):
    function, reference = FUNCTIONS[name]
    if device == "llvm":
        pytest.skip("there are no threads to bind")
    with target_of(device):
        built = tvm.tirx.build(scheduled(function, *rules), target=target_of(device))
    given = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype("float32")
    arguments = [tvm.runtime.tensor(a, device_of(device)) for a in (given, np.zeros_like(given))]
    built["main"](*arguments)
    np.testing.assert_allclose(arguments[1].numpy(), reference(given), rtol=1e-5, atol=1e-5)


def test_a_line_says_so(caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        scheduled(doubled, Raises(), dlight.gpu.Fallback())
    assert [record.getMessage() for record in caplog.records] == [
        "TVM's default schedule of main fails: Raises (AttributeError: no such attribute);"
        " it gets the next: Fallback."
    ]


def test_nothing_is_said_where_nothing_fails(caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        scheduled(doubled, dlight.gpu.Matmul(), dlight.gpu.Fallback())
    assert not caplog.records


def test_schedules_are_those_of_tvm():
    """Where no rule fails, the function is the one that TVM's own pass makes."""
    rules = [dlight.gpu.Matmul(), dlight.gpu.GEMV(), dlight.gpu.Fallback()]
    ours = scheduled(doubled, *rules)
    tvm_scatter.uninstall()
    try:
        with cuda_target("sm_90"):
            stock = dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": doubled}))
    finally:
        tvm_scatter.install()
    tvm.ir.assert_structural_equal(ours, stock)


def test_a_scheduled_function_is_left_alone():
    function = doubled.with_attr("tirx.is_scheduled", True)
    tvm.ir.assert_structural_equal(scheduled(function, Raises())["main"], function)


def inner_products(rows):
    """Products of rows of heads with a vector for each head, as in graph attention."""
    builder = relax.BlockBuilder()
    shapes = [(rows, 4, 8), (1, 4, 8)]
    parameters = [relax.Var(f"p{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", parameters):
        with builder.dataflow():
            product = builder.emit(relax.op.multiply(*parameters))
            result = builder.emit_output(relax.op.sum(product, [2]))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("rows", [60, 200])
def test_attention_of_heads_compiles(rows):
    """TVM's rule for GEMV raises on it; for fewer rows, its schedule is wrong."""
    tvm.compile(inner_products(rows), cuda_target("sm_90"))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 7, 60, 200])
def test_attention_of_heads_is_right(rows):
    executable = tvm.compile(inner_products(rows), target_of("cuda"))
    machine = relax.VirtualMachine(executable, device_of("cuda"))
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((rows, 4, 8)).astype("float32"), draw((1, 4, 8)).astype("float32")
    found = machine["main"](*[tvm.runtime.tensor(x, device_of("cuda")) for x in (a, b)])
    np.testing.assert_allclose(found.numpy(), (a * b).sum(2), rtol=1e-5, atol=1e-5)


def test_uninstall_gives_tvms_own_pass_back():
    tvm_scatter.uninstall()
    try:
        assert dlight.ApplyDefaultSchedule.__module__.startswith("tvm.")
    finally:
        tvm_scatter.install()
    assert dlight.ApplyDefaultSchedule is GuardedDefaultSchedule


@pytest.mark.parametrize(
    ("shapes", "mixed"),
    [
        ([(7, 2, 2), (1, 2, 2)], True),
        ([(7, 64), (64,)], False),
        ([(7, 5, 64), (64,)], False),
        ([(7, 5, 64), (7, 1, 64)], False),
        ([(7, 5, 64), (5, 64)], True),
    ],
)
def test_rows_that_the_schedule_of_products_mixes_up(shapes, mixed):
    first, second = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip("xy", shapes, strict=True)
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [first, second]):
        with builder.dataflow():
            product = relax.op.sum(relax.op.multiply(first, second), axis=-1)
            result = builder.emit_output(product)
        builder.emit_func_output(result)
    names = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")
    mod = tvm.transform.Sequential([getattr(relax.transform, name)() for name in names])(
        builder.get()
    )
    [function] = [each for _, each in mod.functions_items() if isinstance(each, tvm.tirx.PrimFunc)]
    assert mixes_up_rows(function) is mixed
