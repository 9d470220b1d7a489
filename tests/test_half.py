"""float16 on CPUs that cannot convert it: the same bits, and no function called for an element."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from harness import ProblemRunner
from tally import Tally
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.problem.reductions import REDUCTIONS, numpy_dtype
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.targets import host_target
from tvm_scatter.strategies.llvm import half

#: Calls of the functions that convert in software, rather than their definitions.
_CALLS = re.compile(r"\b(?:call|jmp)\w*\s+__(?:extend|trunc|gnu)\w+")
_EXTENT, _COUNT, _WIDTH = 40, 700, 24


def _compiled(convert: Callable[[Any], Any], source: str, result: str) -> Callable[[Any], Any]:
    """A conversion as a function of arrays of one size."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
            size = tirx.Var("n", "int64")
            given = T.match_buffer(T.arg("given", T.handle()), (size,), source)
            converted = T.match_buffer(T.arg("converted", T.handle()), (size,), result)
            with T.serial(size) as i:
                T.buffer_store(converted, convert(given[i]), [i])
    function = builder.get().with_attr("global_symbol", "main")
    executable = tvm.compile(tvm.IRModule({"main": function}), Target("llvm"))

    def run(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        out = tvm.runtime.tensor(np.zeros(values.shape, result))
        executable["main"](tvm.runtime.tensor(values), out)
        return out.numpy()

    return run


@pytest.fixture(scope="module")
def narrow() -> Callable[[Any], Any]:
    return _compiled(half.narrow, "float32", "float16")


def _assert_rounded(narrow: Callable[[Any], Any], bits: np.ndarray[Any, Any]) -> None:
    values = bits.astype("uint32").view("float32")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        expected = values.astype("float16")
    actual, expected = narrow(values).view("uint16"), expected.view("uint16")
    # What is left of a NaN is what the processors keep: its sign and its first bits.
    signs, nan = bits >> 16 & 0x8000, np.isnan(values)
    expected = np.where(nan, signs | 0x7E00 | (bits >> 13 & 0x1FF), expected)
    np.testing.assert_array_equal(actual, expected)


def test_every_float16_is_widened_exactly() -> None:
    values = np.arange(1 << 16, dtype="uint16").view("float16")
    widened = _compiled(half.widen, "float16", "float32")(values)
    expected = values.astype("float32")
    quiet = np.where(np.isnan(values), np.uint32(1 << 22), np.uint32(0))
    np.testing.assert_array_equal(widened.view("uint32") | quiet, expected.view("uint32") | quiet)


def test_narrowing_rounds_to_the_nearest_and_even(narrow: Callable[[Any], Any]) -> None:
    """All that is a float16, all that is halfway between two, and the float32 beside each."""
    finite = np.arange(0x7C00, dtype="uint16").view("float16").astype("float32")
    after = np.append(finite[1:], np.float32(65536))
    exact = np.concatenate([finite, (finite + after) / 2]).view("uint32").astype("int64")
    near = np.concatenate([exact + offset for offset in (-1, 0, 1)])
    near = near[near >= 0]
    _assert_rounded(narrow, np.concatenate([near, near | 1 << 31]))


def test_narrowing_of_special_values(narrow: Callable[[Any], Any]) -> None:
    """Infinities, every payload of a NaN that shows, signalling ones, and the smallest numbers."""
    payloads = (np.arange(1 << 10) << 13) | 0x7F800000
    large = np.concatenate([payloads, payloads + 1, [0x7F7FFFFF, 0x7FFFFFFF, 0x47800000]])
    positive = np.concatenate([large, np.arange(1 << 10), np.arange(1 << 10) + 0x00800000])
    _assert_rounded(narrow, np.concatenate([positive, positive | 1 << 31]))


def test_narrowing_of_random_bits(narrow: Callable[[Any], Any]) -> None:
    _assert_rounded(narrow, np.random.default_rng(0).integers(0, 1 << 32, 1 << 20))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(16))
def test_narrowing_of_every_float32(narrow: Callable[[Any], Any], part: int) -> None:
    for first in range(part << 28, part + 1 << 28, 1 << 22):
        _assert_rounded(narrow, np.arange(first, first + (1 << 22)))


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"mtriple": "x86_64-linux-gnu"}, False),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v2"}, False),
        ({"mtriple": "x86_64-linux-gnu", "mattr": ["+f16c"]}, True),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}, True),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v4"}, True),
        ({"mtriple": "aarch64-linux-gnu"}, True),
        ({"mtriple": "armv7l-linux-gnueabihf"}, False),
    ],
    ids=str,
)
def test_which_processors_convert(described: dict[str, Any], expected: bool) -> None:
    assert half.has_instructions(Target({"kind": "llvm", **described})) is expected


@pytest.mark.parametrize(
    ("dtype", "reductions"),
    [
        ("float16", ("add",)),
        pytest.param(
            "float16", ("mean", "mul", "min", "max", "update"), marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "bfloat16",
            tuple(name for name in REDUCTIONS if "bfloat16" in REDUCTIONS[name].dtypes),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_every_implementation_without_instructions(
    dtype: str, reductions: tuple[str, ...], tally: Tally
) -> None:
    """It gives the bits that it gives with them, and calls no function for an element."""
    plain, native = ProblemRunner("llvm"), ProblemRunner("llvm")
    native.target = host_target()
    names = _add_problems([plain, native], dtype, reductions)
    plain.compile()
    assert not _CALLS.findall(plain.source("asm"))
    generator = np.random.default_rng(1)
    index = generator.integers(0, _EXTENT, _COUNT, "int32")
    data, updates = (_finite(generator, rows * _WIDTH, dtype) for rows in (_EXTENT, _COUNT))
    # Where two NaNs meet, processors are free to keep either.
    data[::7] = np.nan
    for name in names:
        results = [runner.run(name, data, [index], updates) for runner in (plain, native)]
        assert results[0].tobytes() == results[1].tobytes(), name
    tally("16-bit results equal without and with instructions", len(names) * data.size)


def _add_problems(
    runners: Sequence[ProblemRunner], dtype: str, reductions: Sequence[str]
) -> list[str]:
    """Scatters of rows by every implementation that takes them; the names they get."""
    strategy = strategy_for("llvm")
    assert strategy is not None
    names = []
    for reduction in reductions:
        problem = ScatterProblem(
            batch=SymbolicSize(),
            extents=(SymbolicSize.product([_EXTENT]),),
            slice=SymbolicSize.product([_WIDTH]),
            count=SymbolicSize.product([_COUNT]),
            data_dtype=dtype,
            index_dtype="int32",
            reduction=reduction,
        )
        for implementation in strategy.applicable(problem, runners[0].target):
            names.append(f"{implementation}_{reduction}")
            for runner in runners:
                runner.add(names[-1], problem, implementation)
    return names


def _finite(generator: np.random.Generator, size: int, dtype: str) -> np.ndarray[Any, Any]:
    """Numbers of all magnitudes, subnormal ones among them; many sums overflow."""
    values = generator.integers(0, 1 << 16, size, "uint16").view(numpy_dtype(dtype))
    return np.where(np.isfinite(values.astype("float64")), values, values.dtype.type(0))
