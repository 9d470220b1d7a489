"""Messages of rows that end within a vector, of NaNs, and by indices without a sign."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness import run
from tvm import relax

from tvm_scatter.ops.operators import index_put, scatter_elements

BINS = ("shared_bins", "split_bins")


def emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def elements(x: Any, source: Any, index: Any) -> Any:
    """Adds elements of rows that are read, each to a place of its own."""
    rows = emit(relax.op.take(x, source, 0))
    return scatter_elements(emit(relax.op.zeros_like(x)), index, rows, 0, "add")


def elements_by_hand(x: Any, source: Any, index: Any) -> Any:
    expected = np.zeros_like(x)
    for row, of in enumerate(source):
        for column in range(x.shape[1]):
            expected[index[row, column], column] += x[of, column]
    return expected


@pytest.mark.turns(4)
@pytest.mark.parametrize("bins", [None, *BINS])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_vectors_go_on_in_the_next_row(device: str, bins: str | None, width: int) -> None:
    if device == "llvm" and bins is not None:
        pytest.skip("CPUs have no such implementation")
    generator = np.random.default_rng(width)
    x = generator.integers(-9, 10, (7, width)).astype("float32")
    source, index = generator.integers(0, 7, 15), generator.integers(0, 7, (15, width), "int8")
    found = run(elements, [x, source, index], device, implementation=bins, fuse=True)
    np.testing.assert_array_equal(found, elements_by_hand(x, source, index))


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", ["minimum", "maximum"])
def test_numbers_that_are_none(device: str, dtype: str, operator: str) -> None:
    """A scatter computes the same as the operators in front of it alone."""
    numbers = [1, np.nan, 2, -3, np.nan, 0, np.nan, 5]
    left = np.array([numbers, numbers[::-1]]).astype(
        dtype if dtype == "float16" else ml_dtypes.bfloat16
    )
    right = np.roll(left, 3, 1)

    def build(left: Any, right: Any, index: Any) -> Any:
        message = emit(getattr(relax.op, operator)(left, right))
        return index_put(emit(relax.op.zeros_like(left)), [index], message, [0], "add")

    arguments = [left, right, np.array([1, 0])]
    together, apart = (run(build, arguments, device, fuse=fuse) for fuse in (True, False))
    np.testing.assert_array_equal(together.astype("float32"), apart.astype("float32"))


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "comparison", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
)
def test_a_choice_by_a_comparison_of_16_bit_floats(
    device: str, dtype: str, comparison: str
) -> None:
    """Also of what is no number, which is unequal to any."""
    kind = np.dtype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    least = float(np.array(1, "uint16").view(kind))
    left = [1, np.nan, 2, -0.0, np.inf, 0, np.nan, 5, least, 0, -least, -np.inf]
    right = [1, 1, 3, 0, np.inf, -1, np.nan, -5, 0, least, least, 0]
    left, right = (np.array([each], kind) for each in (left, right))

    def build(left: Any, right: Any, index: Any) -> Any:
        holds = emit(getattr(relax.op, comparison)(left, right))
        tenth = emit(relax.op.multiply(left, relax.const(0.25, dtype)))
        message = emit(relax.op.where(holds, tenth, right))
        return index_put(emit(relax.op.zeros_like(left)), [index], message, [0], "update")

    arguments = [left, right, np.array([0])]
    together, apart = (run(build, arguments, device, fuse=fuse) for fuse in (True, False))
    holds = getattr(np, comparison)(left.astype("float32"), right.astype("float32"))
    expected = np.where(holds, left * kind.type(0.25), right).astype("float32")
    for found in (together, apart):
        np.testing.assert_array_equal(found.astype("float32"), expected)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", ["minimum", "maximum"])
def test_a_limit_of_16_bit_floats(device: str, dtype: str, operator: str) -> None:
    kind = np.dtype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    x = np.array([[1, np.nan, -2, 0.5, np.inf, -np.inf, 3, 0]]).astype(kind)

    def build(x: Any, index: Any) -> Any:
        message = emit(getattr(relax.op, operator)(x, relax.const(0.5, dtype)))
        return index_put(emit(relax.op.zeros_like(x)), [index], message, [0], "add")

    found = run(build, [x, np.array([0])], device, fuse=True)
    limit = {"minimum": np.fmin, "maximum": np.fmax}[operator]
    np.testing.assert_array_equal(found.astype("float32"), limit(x.astype("float32"), 0.5))


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("slope", [0.2, 1.0, 1.5, -0.5])
def test_a_leaky_relu_of_all_16_bit_floats(device: str, dtype: str, slope: float) -> None:
    """By a slope of up to one it is the greater of two numbers. Of GPUs it has 16 bits as well."""
    kind = np.dtype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    x = np.arange(1 << 16, dtype="uint16").view(kind).reshape(1024, 64)

    def build(x: Any, index: Any) -> Any:
        message = emit(relax.op.nn.leakyrelu(x, slope))
        return index_put(emit(relax.op.zeros_like(x)), [index], message, [0], "update")

    found = run(build, [x, np.arange(1024)], device, fuse=True)
    with np.errstate(all="ignore"):
        factor = np.float32(slope if device == "llvm" else np.asarray(slope, kind))
        product = x.astype("float32") * factor
        expected = np.where(x > 0, x, product.astype(kind)).astype("float32")
    found = found.astype("float32")
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.turns(2)
def test_an_index_without_a_sign_reads_the_only_row(device: str, wraps: bool) -> None:
    x, index = np.array([[3.0, 4.0, 5.0, 6.0]], "float32"), np.zeros(5, "uint8")

    def build(x: Any, index: Any) -> Any:
        zeros = emit(relax.op.zeros_like(x))
        rows = emit(relax.op.take(x, index, 0))
        return index_put(zeros, [index], rows, [0], "mean", wrap_negative=wraps)

    implementation = "segmented" if device != "llvm" else None
    found = run(build, [x, index], device, implementation=implementation, fuse=True)
    np.testing.assert_allclose(found, x * 5 / 6)
