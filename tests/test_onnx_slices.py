"""ONNX's ``Slice`` whose places are computed, and what reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tvm  # noqa: E402
from harness import device_of, target_of  # noqa: E402
from onnx import parser  # noqa: E402
from test_onnx_idioms import HEAD, expected  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402

Array = np.ndarray[Any, Any]

#: What is computed of the slices part and other, of 1 to 4 rows.
READERS = {
    "product": "product = Mul(part, other)",
    "sum": "sum = Add(part, other)",
    "joined": "joined = Concat<axis = 0>(part, other)",
    "scores": "turned = Transpose<perm = [1, 0]>(other) scores = MatMul(part, turned)",
    "total": "squares = Mul(part, other) total = ReduceSum<keepdims = 0>(squares)",
    "weights": "logits = Sub(part, other) weights = Softmax<axis = 0>(logits)",
    "chosen": """
        pairs = Mul(part, other) places = Constant<value = int64[2] {0, -1}>()
        chosen = Gather(pairs, places)""",
    "added": """
        lines = Shape<start = 0, end = 1>(part) zero0 = Constant<value = int64 {0}>()
        one0 = Constant<value = int64 {1}>() count = Squeeze(lines)
        numbers = Range(zero0, count, one0) indices = Unsqueeze(numbers, one)
        updates = Mul(part, other) added = ScatterND<reduction = "add">(x, indices, updates)""",
}
TEXT = """(float[6, 4] x, float[6, 4] v, int64[1] from, int64[1] to) => (%s) {
    zero = Constant<value = int64[1] {0}>() one = Constant<value = int64[1] {1}>()
    part = Slice(x, from, to, zero) other = Slice(v, from, to, zero) %s }"""


def machine_of(text: str, device: str) -> tuple[Any, Any]:
    model = parser.parse_model(HEAD + text)
    compiled = tvm.compile(from_onnx(model), target_of(device))
    return model, relax.VirtualMachine(compiled, device_of(device))


def check(model: Any, machine: Any, device: str, inputs: dict[str, Array]) -> None:
    tensors = [tvm.runtime.tensor(each, device_of(device)) for each in inputs.values()]
    results = machine["main"](*tensors)
    results = [results] if isinstance(results, tvm.runtime.Tensor) else results
    for result, right in zip(results, expected(model, inputs), strict=True):
        assert result.numpy().shape == right.shape
        np.testing.assert_allclose(result.numpy(), right, rtol=1e-5, atol=1e-6)


def test_two_slices_are_read_together(device: str) -> None:
    results = ", ".join(f"float{'' if name == 'total' else '[a, b]'} {name}" for name in READERS)
    model, machine = machine_of(TEXT % (results, " ".join(READERS.values())), device)
    x, v = (np.random.default_rng(seed).random((6, 4), "float32") for seed in range(2))
    for start, end in ((1, 4), (0, 6), (-2, -1)):
        places = {"from": np.array([start]), "to": np.array([end])}
        check(model, machine, device, {"x": x, "v": v, **places})


def test_slices_of_other_sizes_are_an_error(device: str) -> None:
    text = """(float[6, 4] x, int64[1] from, int64[1] to) => (float[a, b] y) {
        zero = Constant<value = int64[1] {0}>()
        part = Slice(x, zero, from, zero) other = Slice(x, zero, to, zero) y = Add(part, other) }"""
    _, machine = machine_of(text, device)
    places = [np.zeros((6, 4), "float32"), np.array([2]), np.array([3])]
    with pytest.raises(ValueError, match=r"Add: operand of shape .* of size 3 in dimension 0"):
        machine["main"](*(tvm.runtime.tensor(each, device_of(device)) for each in places))


def test_an_axis_that_is_an_input(device: str) -> None:
    """The sizes of the input are a constant, which no call may overwrite with its ends."""
    text = """(float[5, 4, 3] x, int64[1] from, int64[1] to, int64[1] axis) => (float[a, b, c] y) {
        y = Slice(x, from, to, axis) }"""
    model, machine = machine_of(text, device)
    x = np.arange(60, dtype="float32").reshape(5, 4, 3)
    for axis in (0, 1, -1):
        places = {"from": np.array([1]), "to": np.array([2]), "axis": np.array([axis])}
        check(model, machine, device, {"x": x, **places})
