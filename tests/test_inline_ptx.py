"""Device routines with inline PTX give the bits of what stands in for it where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from cuda_cases import cuda_target, generate
from harness import ProblemRunner
from special_values import KINDS, draw
from tvm.support import nvcc

import tvm_scatter
from tvm_scatter import ScatterProblem
from tvm_scatter.problem.reductions import numpy_dtype
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.runtime.cuda_toolkit import nvrtc_version

NO_PTX = "#define TVM_SCATTER_NO_PTX\n"
EXTENT, COUNT = 3000, 20_000
#: Data type, columns, reduction, and whether sums meet: by name.
FORMS = {
    "four_floats_added": ("float32", 16, "add", True),
    "two_floats_added": ("float32", 6, "add", True),
    "eight_halves_added": ("float16", 16, "add", True),
    "eight_bfloats_added": ("bfloat16", 16, "add", True),
    "four_floats_of_any_kind_added": ("float32", 16, "add", False),
    "eight_halves_of_any_kind_added": ("float16", 16, "add", False),
    "eight_bfloats_of_any_kind_added": ("bfloat16", 16, "add", False),
    **{
        f"{reduction}_of_{dtype}": (dtype, 4, reduction, True)
        for reduction in ("min", "max")
        for dtype in ("float32", "float16", "bfloat16")
    },
    **{
        f"{reduction}_of_single_{dtype}": (dtype, 3, reduction, True)
        for reduction in ("min", "max")
        for dtype in ("float16", "bfloat16")
    },
}


def _problem(form: str) -> ScatterProblem:
    dtype, width, reduction, meet = FORMS[form]
    return ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(EXTENT),),
        slice=SymbolicSize(width),
        count=SymbolicSize(COUNT if meet else EXTENT),
        data_dtype=dtype,
        index_dtype="int32",
        reduction=reduction,
        bounds="trust",
    )


def _operands(form: str) -> tuple[Any, Any, Any]:
    """Small whole numbers where sums meet, so that their order does not matter; else any value."""
    dtype, width, reduction, meet = FORMS[form]
    generator = np.random.default_rng(1)
    sizes = EXTENT * width, (COUNT if meet else EXTENT) * width
    index = generator.integers(0, EXTENT, COUNT) if meet else generator.permutation(EXTENT)
    if reduction == "add" and meet:
        numbers = (generator.integers(-4, 5, size) for size in sizes)
        data, updates = (each.astype(numpy_dtype(dtype)) for each in numbers)
    else:
        kinds = (generator.integers(0, len(KINDS), size) for size in sizes)
        data, updates = (draw(generator, dtype, each) for each in kinds)
    return data, index.astype("int32"), updates


@contextmanager
def _without_ptx() -> Iterator[None]:
    name = "tvm_callback_cuda_compile"
    compiler = tvm_ffi.get_global_func(name)
    tvm_ffi.register_global_func(name, lambda code: compiler(NO_PTX + code), override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, compiler, override=True)


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
def test_equal_bits_on_a_gpu(form: str) -> None:
    strategy = tvm_scatter.strategy_for("cuda")
    assert strategy is not None
    problem = _problem(form)
    data, index, updates = _operands(form)
    with_ptx, without = ProblemRunner("cuda"), ProblemRunner("cuda")
    for name, chosen in strategy.implementations.items():
        # Sums have PTX where they are added to memory at once.
        if problem.reduction == "add" and name != "parallel_injective":
            continue
        if strategy.refusal(chosen, problem, with_ptx.target) is None:
            for runner in (with_ptx, without):
                runner.add(name, problem, name)
    with_ptx.compile()
    with _without_ptx():
        without.compile()
    names = list(with_ptx._functions)
    assert names
    for name in names:
        results = [run.run(name, data, [index], updates) for run in (with_ptx, without)]
        assert results[0].tobytes() == results[1].tobytes(), name


@pytest.mark.skipif(nvrtc_version() is None, reason="nvrtc is not installed")
@pytest.mark.parametrize(
    ("chosen", "case", "instruction"),
    [
        ("parallel_injective", "rows_f32_add", "red.relaxed.gpu.global.add.v4.f32"),
        ("segmented", "box_symbolic", "max.NaN.f32"),
    ],
)
@pytest.mark.exhaustive
def test_one_macro_leaves_it_out(chosen: str, case: str, instruction: str) -> None:
    target = cuda_target("sm_90")
    with tvm_scatter.options(implementation=chosen):
        source = generate([case], target).source

    def ptx(text: str) -> str:
        with target:
            options: dict[str, Any] = {"compiler": "nvrtc", "arch": "sm_90"}
            return bytes(nvcc.compile_cuda(text, target_format="ptx", **options)).decode()

    assert instruction in ptx(source)
    assert instruction not in ptx(NO_PTX + source)
