"""ONNX's products of matrices whose sizes fit at run time only, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tvm  # noqa: E402
from test_onnx_slices import check, machine_of  # noqa: E402

#: The inputs and the type of the result, the program, and shapes that fit.
PRODUCTS = {
    "matrices": ("float[n, k] x, float[4, m] w", "a, b", "MatMul(x, w)", ((3, 4), (4, 2))),
    "open": ("float[n, k] x, float[l, m] w", "a, b", "MatMul(x, w)", ((3, 5), (5, 2))),
    "vector": ("float[n, k] x, float[4] w", "a", "MatMul(x, w)", ((3, 4), (4,))),
    "row": ("float[k] x, float[4, 2] w", "a", "MatMul(x, w)", ((4,), (4, 2))),
    "batch": ("float[n, 3, k] x, float[m, 4, 2] w", "a, b, c", "MatMul(x, w)",
              ((5, 3, 4), (5, 4, 2))),
    "one batch": ("float[n, 3, k] x, float[1, 4, 2] w", "a, b, c", "MatMul(x, w)",
                  ((5, 3, 4), (1, 4, 2))),
    "turned": ("float[k, n] x, float[2, 4] w, float[2] c", "a, b",
               "Gemm<transA = 1, transB = 1, alpha = 2.0>(x, w, c)", ((4, 3), (2, 4), (2,))),
    "sum": ("float[n, k] x, float[4, m] w, float[l, 1] c", "a, b", "Gemm<beta = 0.5>(x, w, c)",
            ((3, 4), (4, 2), (3, 1))),
    "two": ("float[n, k] x, float[4, m] w", "a, b", "Gemm(x, w)", ((3, 4), (4, 2))),
}  # fmt: skip
#: Shapes that do not, and what errors say.
WRONG = {
    "matrices": (((3, 6), (4, 2)), "MatMul: operand of shape .* of size 6 .* 1 must have size 4"),
    "open": (((3, 6), (4, 2)), "MatMul: operand of shape .* of size 4 .* must have size 6"),
    "vector": (((3, 6), (4,)), "MatMul: operand of shape .* of size 6"),
    "row": (((6,), (4, 2)), "MatMul: operand of shape .* of size 6"),
    "batch": (((5, 3, 4), (2, 4, 2)), "MatMul: operand of shape .* 2 in dimension 0 .* size 5"),
    "turned": (((5, 3), (2, 4), (2,)), "Gemm: operand of shape .* of size 5 .* must have size 4"),
    "sum": (((3, 4), (4, 2), (5, 1)), "Gemm: operand of shape .* of size 5 .* must have size 3"),
    "two": (((3, 6), (4, 2)), "Gemm: operand of shape .* of size 6 .* must have size 4"),
}


def given(shapes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    pairs = zip("xwc", shapes, strict=False)
    return {name: rng.random(shape, "float32") for name, shape in pairs}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    inputs, result, call, shapes = PRODUCTS[name]
    text = f"({inputs}) => (float[{result}] y) {{ y = {call} }}"
    model, machine = machine_of(text, "llvm")
    check(model, machine, "llvm", given(shapes))
    if name in WRONG:
        wrong, said = WRONG[name]
        with pytest.raises(ValueError, match=said):
            machine["main"](*map(tvm.runtime.tensor, given(wrong).values()))


def test_a_product_of_what_is_reshaped(device: str) -> None:
    text = """(float[n, 4] x, int64[2] s, float[6, 2] w) => (float[a, b] y) {
        new = Reshape(x, s) y = MatMul(new, w) }"""
    model, machine = machine_of(text, device)
    numbers = given(((3, 4), (6, 2)))
    check(model, machine, device, {"x": numbers["x"], "s": np.array([2, 6]), "w": numbers["w"]})
