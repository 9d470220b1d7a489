"""``explain`` says how sorts, selections and running sums are computed, or why TVM does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import tvm
from tvm import relax

import tvm_scatter

CUDA = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
UNKNOWN = tvm.tirx.Var("n", "int64")

argsort = partial(relax.op.argsort, axis=-1, dtype="int64")
cumsum = partial(relax.op.cumsum, axis=-1)


def largest(count: int) -> Callable[..., Any]:
    return partial(relax.op.topk, k=count, axis=-1, ret_type="both", dtype="int64")


def module(operator: Callable[..., Any], shape: tuple[Any, ...], dtype: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(list(shape), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(operator(x)))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize(
    ("operator", "shape", "dtype", "line"),
    [
        (
            argsort,
            (100, 8),
            "int64",
            "sort: main.lv = argsort, by counting, because a line is short",
        ),
        (
            argsort,
            (10, 3000),
            "int32",
            "sort: main.lv = argsort, a line by a block, because a block keeps it",
        ),
        (
            argsort,
            (2, 100_000),
            "int32",
            "sort: main.lv = argsort, all lines by radix, because they are too long for a block",
        ),
        (
            argsort,
            (3, UNKNOWN),
            "int32",
            "sort: main.lv = argsort, by counting, by blocks or by radix, "
            "as the run time finds the length of a line",
        ),
        (
            argsort,
            (3, 8),
            "float32",
            "sort: main.lv = argsort, by TVM, because float32 is not sorted by this package",
        ),
        (largest(20), (16, 1000), "int32", "topk: main.lv = topk, selected by a warp"),
        (
            largest(20),
            (16, 40_000),
            "int32",
            "topk: main.lv = topk, selected from what 5 blocks select from parts of a line",
        ),
        (
            largest(20),
            (16, 30),
            "int32",
            "topk: main.lv = topk, sorted, because most of a line is wanted: "
            "by counting, because a line is short",
        ),
        (cumsum, (5, 1000), "int64", "scan: main.lv = cumsum, a line by a warp"),
        (cumsum, (5, 100_000), "int64", "scan: main.lv = cumsum, a line in tiles, in one pass"),
    ],
)
def test_forms(operator: Callable[..., Any], shape: tuple[Any, ...], dtype: str, line: str) -> None:
    [note] = tvm_scatter.explain(module(operator, shape, dtype), CUDA).lines
    assert str(note) == line


def test_where_nothing_but_tvm_sorts() -> None:
    mod = module(argsort, (3, 8), "int32")
    line = "sort: main.lv = argsort, by TVM, because this package has no sort for llvm"
    assert str(tvm_scatter.explain(mod, "llvm")) == line
    with tvm_scatter.options(enabled=False):
        assert str(tvm_scatter.explain(mod, CUDA)) == "no scatter"
