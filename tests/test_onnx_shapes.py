"""ONNX operators of shapes and sizes that are symbolic, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import parser  # noqa: E402
from test_onnx_idioms import HEAD, compare  # noqa: E402
from test_onnx_import import run  # noqa: E402

import tvm_scatter  # noqa: E402

#: What is computed from x of shape (n, k) and i of shape (k,), and the type of the result y.
PROGRAMS = {
    "the greater of two shapes": """float[a, b, c] {
        some = Shape(x) zeros = Constant<value = int64[2] {1, 4}>()
        wanted = Max(some, zeros) row = Gather<axis = 1>(x, first) y = Expand(row, wanted) }""",
    "the less of two sizes": """float[a, b] {
        some = Shape(x) one = Gather<axis = 0>(some, zero) two = Gather<axis = 0>(some, last)
        less = Min(one, two) at = Range(zero, less, last) y = Gather(x, at) }""",
    "a shape with another size": """float[a, b] {
        some = Shape(x) other = Shape(i) wanted = ScatterElements(some, first, other)
        column = Gather<axis = 0>(x, first) y = Expand(column, wanted) }""",
    "sums and products": """int64[a] {
        some = Shape(x) other = Shape(i) sum = Add(some, other) product = Mul(sum, some)
        less = Sub(product, other) same = Identity(less) y = Neg(same) }""",
    "sizes by a list": """float[a, b] {
        some = Shape(x) swap = Constant<value = int64[2] {-1, 0}>()
        wanted = Gather(some, swap) y = Reshape(x, wanted) }""",
    "a range up to a size": """float[a] {
        some = Shape(x) size = Gather<axis = 0>(some, last) at = Range(zero, size, last)
        axis = Constant<value = int64[1] {1}>()
        row = Unsqueeze(at, axis) column = Unsqueeze(i, axis)
        tuples = Concat<axis = 1>(row, column) y = GatherND(x, tuples) }""",
    "a range from a number in steps": """int64[a] {
        some = Shape(x) size = Gather<axis = 0>(some, zero)
        two = Constant<value = int64 {2}>() y = Range(last, size, two) }""",
    "a range backwards": """int64[a] {
        some = Shape(x) size = Gather<axis = 0>(some, zero) more = Sub(zero, size)
        step = Constant<value = int64 {-2}>() y = Range(last, more, step) }""",
    "a size or an index": """int64[a] {
        some = Shape(x) size = Gather<axis = 0>(some, zero)
        small = Less(i, last) y = Where(small, size, i) }""",
    "axes backwards": """float[a, b] {
        from = Constant<value = int64[2] {-1, 1}>()
        to = Constant<value = int64[2] {-9223372036854775808, 3}>()
        axes = Constant<value = int64[2] {0, 1}>() step = Constant<value = int64[2] {-1, 1}>()
        y = Slice(x, from, to, axes, step) }""",
    "all of an axis, sorted": """float[a, b] {
        given = Reshape(x, fixed) some = Shape(given) size = Gather<axis = 0>(some, last)
        all = Reshape(size, back) y, at = TopK(given, all) }""",
}
CONSTANTS = """
    zero = Constant<value = int64 {0}>() last = Constant<value = int64 {1}>()
    first = Constant<value = int64[1] {0}>() back = Constant<value = int64[1] {-1}>()
    fixed = Constant<value = int64[2] {-1, 2}>()
"""


def model(name: str) -> Any:
    result, body = PROGRAMS[name].split("{", 1)
    return parser.parse_model(
        HEAD + f"(float[n, k] x, int64[k] i) => ({result} y) {{ {CONSTANTS} {body}"
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_onnxruntime(name: str) -> None:
    x = np.arange(20, dtype="float32").reshape(5, 4) % 7
    compare(model(name), {"x": x, "i": np.array([0, 3, 1, 2])})


def test_a_new_shape_that_does_not_fit() -> None:
    text = """(float[n, 2] x, bool[4] m) => (float[a, b] y) {
        listed = NonZero(m) shape = Shape(listed) y = Reshape(x, shape)
    }"""
    made = parser.parse_model(HEAD + text)
    mask = np.array([True, False, True, True])
    with pytest.raises(ValueError, match=r"Reshape: flattened input of size 2 .* size 3 there"):
        run(made, [np.zeros((1, 2), "float32"), mask])
    with pytest.raises(ValueError, match=r"Reshape: flattened input of size 4 .* size 3 there"):
        run(made, [np.zeros((2, 2), "float32"), mask])


def test_parts_that_are_one() -> None:
    text = """(float[4] x, bool[4] m) => (float[a] y) {
        one = Constant<value = int64[1] {1}>() listed = NonZero(m)
        rows = Transpose<perm = [1, 0]>(listed) part = Split<axis = 1>(rows, one)
        at = Squeeze(part, one) y = Gather(x, at)
    }"""
    x = np.arange(4, dtype="float32")
    compare(parser.parse_model(HEAD + text), {"x": x, "m": x > 1})


POOLS = {
    "line": ("2, 3, 9", "kernel_shape = [3], strides = [2], pads = [1, 0]"),
    "plane": ("2, 3, 6, 5", "kernel_shape = [2, 3], pads = [0, 1, 1, 1], dilations = [2, 1]"),
    "batch": ("n, 3, 6, 5", "kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1"),
    "space": ("2, 3, 4, 5, 4", "kernel_shape = [2, 2, 2]"),
}


def pool(shape: str, attributes: str) -> Any:
    axes = ", ".join("abcde"[: shape.count(",") + 1])
    return parser.parse_model(
        f"{HEAD} (float[{shape}] x) => (float[{axes}] y, int64[{axes}] at) "
        f"{{ y, at = MaxPool<{attributes}>(x) }}"
    )


@pytest.mark.parametrize("name", POOLS)
def test_positions_of_maxima(name: str) -> None:
    shape, attributes = POOLS[name]
    own = tuple(int(size) for size in shape.replace("n", "2").split(","))
    x = np.random.default_rng(0).integers(-9, 9, own).astype("float32")
    compare(pool(shape, attributes), {"x": x}, ("y", "at"))


def test_positions_that_are_not_supported() -> None:
    with pytest.raises(tvm_scatter.ScatterError, match=r"MaxPool: .* auto_pad SAME_UPPER"):
        run(pool("2, 3, 9", 'kernel_shape = [3], auto_pad = "SAME_UPPER"'), [])
