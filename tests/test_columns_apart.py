"""Rows whose vectors are short: a thread has several of them, as far apart as there are threads."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import pytest
import tvm
from column_parts import columns_in_parts
from harness import called, compiled_with
from tvm import relax

from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.strategies.cuda.steps.column_parts import columns_each

NODES = 13


@pytest.mark.parametrize(
    ("dtype", "width", "vector", "columns"),
    [
        ("bfloat16", 121, 1, 4),
        ("bfloat16", 602, 2, 4),
        ("bfloat16", 50, 2, 2),
        ("bfloat16", 31, 1, 2),
        ("bfloat16", 15, 1, 1),
        ("bfloat16", 300, 4, 1),
        ("float32", 1433, 1, 2),
        ("float32", 602, 2, 2),
        ("float32", 18, 2, 1),
        ("float32", 128, 4, 1),
        ("float64", 33, 1, 2),
        ("float64", 34, 2, 1),
        ("int8", 33, 1, 4),
        ("float32", None, 1, 1),
    ],
)
def test_how_many(dtype: str, width: int | None, vector: int, columns: int) -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(1),
        extents=(SymbolicSize(NODES),),
        slice=SymbolicSize(width or 1),
        count=SymbolicSize(99),
        data_dtype=dtype,
        index_dtype="int32",
    )
    assert columns_each(problem, width, vector) == columns


def module(dtype: str, width: int, edges: int, owns: bool) -> tvm.IRModule:
    """The sum of x[src] * weight, or of what x[dst] has more, at the end of each edge."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, width], dtype))
    src, dst = (relax.Var(name, relax.TensorType([edges], "int32")) for name in ("src", "dst"))
    weight = relax.Var("weight", relax.TensorType([edges, 1], dtype))
    with builder.function("main", [x, src, dst, weight]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(x, src, axis=0))
            if owns:
                rows = builder.emit(relax.op.take(x, dst, axis=0) - rows)
            else:
                rows = builder.emit(relax.op.multiply(rows, weight))
            zeros = builder.emit(relax.op.full([NODES, width], relax.const(0, dtype)))
            output = builder.emit_output(index_put(zeros, [dst], rows, [0], "add"))
        builder.emit_func_output(output)
    return builder.get()


@cache
def operands(dtype: str, width: int, edges: int) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, so that sums are exact. One place has most edges, and one has none."""
    random, kind = np.random.default_rng(width), np.dtype(dtype)
    x = random.integers(-2, 3, [NODES, width]).astype(kind)
    src = random.integers(0, NODES, edges).astype("int32")
    dst = np.where(random.random(edges) < 0.7, 5, random.integers(0, NODES - 1, edges))
    weight = random.integers(1, 3, [edges, 1]).astype(kind)
    return [x, src, dst.astype("int32"), weight]


def expected(arrays: list[Any], owns: bool) -> np.ndarray[Any, Any]:
    x, src, dst, weight = arrays
    wide = x.astype("float64")
    result = np.zeros(x.shape)
    np.add.at(result, dst, wide[dst] - wide[src] if owns else wide[src] * weight.astype("float64"))
    return result.astype(x.dtype)


KINDS = [
    ("float32", 33),
    ("float32", 71),
    ("float64", 33),
    ("float16", 50),
    ("bfloat16", 47),
    ("bfloat16", 150),
    ("int8", 33),
]


@pytest.mark.turns(7)
@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("owns", [False, True], ids=["weighted", "own"])
@pytest.mark.parametrize(("dtype", "width"), KINDS)
@pytest.mark.parametrize("chosen", ["bucketed", "grouped", "segmented"])
def test_sums(dtype: str, width: int, owns: bool, chosen: str) -> None:
    """Short and long lists, of rows that are no multiple of what a group of threads has."""
    check(operands(dtype, width, 700), owns, chosen)


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("owns", [False, True], ids=["weighted", "own"])
@pytest.mark.turns(2)
def test_buckets_that_are_cut(owns: bool) -> None:
    """A bucket of four places, one of which has most of the updates, is cut into units."""
    knobs = {"bucket_bits": 2, "per_thread": 2}
    check(operands("bfloat16", 35, 9000), owns, "bucketed", knobs=knobs)


@pytest.mark.usefixtures("on_cuda")
def test_first_columns_before_others() -> None:
    with columns_in_parts():
        check(operands("float32", 71, 700), False, "bucketed")


def check(arrays: list[Any], owns: bool, implementation: str, **more: Any) -> None:
    x, src, *_ = arrays
    made = module(str(x.dtype), x.shape[1], len(src), owns)
    forced = {"implementation": implementation, "fuse": True, "share_order": False}
    machine = compiled_with(made, "cuda", bounds="drop", **forced, **more)
    np.testing.assert_array_equal(called(machine, "cuda", arrays), expected(arrays, owns))
