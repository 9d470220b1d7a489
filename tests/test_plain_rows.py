"""Reductions along rows that lie side by side are right, and taken where TVM's own is slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target
from harness import compile_all, run_compiled
from tvm import relax

from tvm_scatter.schedules.gpu.plain_rows import plain_reduction

ROWS = np.arange(96 * 4 * 32, dtype="float32").reshape(96, 4, 32) % 7
WEIGHTS = np.arange(4 * 32, dtype="float32").reshape(1, 4, 32) % 5 - 2


def weighed(x: Any, w: Any) -> Any:
    return relax.op.sum(relax.op.multiply(x, w), axis=-1)


def largest(x: Any) -> Any:
    return relax.op.max(x, axis=[1, 2])


def products(x: Any, y: Any) -> Any:
    return relax.op.matmul(x, relax.op.permute_dims(y))


def functions_of(build: Any, *shapes: Any) -> list[tvm.tirx.PrimFunc]:
    """What TVM makes of a function of Relax, before it is scheduled."""
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    dims = [[n if size == "n" else size for size in shape] for shape in shapes]
    given = [relax.Var(f"p{i}", relax.TensorType(d, "float32")) for i, d in enumerate(dims)]
    with builder.function("main", given):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(build(*given)))
        builder.emit_func_output(output)
    steps = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")
    with cuda_target("sm_90"):
        mod = tvm.transform.Sequential([getattr(relax.transform, each)() for each in steps])(
            builder.get()
        )
    return [each for each in mod.functions.values() if isinstance(each, tvm.tirx.PrimFunc)]


@pytest.mark.parametrize(
    ("build", "shapes", "taken"),
    [
        (weighed, [(100_000, 4, 32), (1, 4, 32)], True),
        (weighed, [("n", 4, 32), (1, 4, 32)], True),
        (weighed, [(100_000, 4, 33), (1, 4, 33)], False),
        (weighed, [(8, 4, 4096), (1, 4, 4096)], False),
        (weighed, [("n", 4, 4096), (1, 4, 4096)], False),
        (largest, [(100_000, 4, 32)], True),
        (lambda x: relax.op.sum(x, axis=0), [(100_000, 32)], False),
        (lambda x: relax.op.sum(x), [(100_000, 32)], False),
        (products, [(1000, 64), (1000, 64)], False),
    ],
    ids=[
        *("many rows", "who knows how many", "odd rows", "few rows", "long rows"),
        *("two axes", "columns", "everything", "a product"),
    ],
)
def test_which_reductions_are_taken(build: Any, shapes: Any, taken: bool) -> None:
    functions = functions_of(build, *shapes)
    assert any(plain_reduction(each) is not None for each in functions) == taken


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
@pytest.mark.turns(2)
def test_reductions_are_right(dtype: str) -> None:
    many = np.concatenate([ROWS] * 100).astype(dtype)
    calls = {
        "sums": (weighed, [many, WEIGHTS.astype(dtype)]),
        "maxima": (largest, [many]),
        "few": (weighed, [many[:3], WEIGHTS.astype(dtype)]),
    }
    found = run_compiled(compile_all(calls, "cuda"), calls, "cuda")
    exact = many.astype("float64")
    np.testing.assert_array_equal(found["sums"], (exact * WEIGHTS).sum(-1))
    np.testing.assert_array_equal(found["maxima"], exact.max((1, 2)))
    np.testing.assert_array_equal(found["few"], (exact[:3] * WEIGHTS).sum(-1))
