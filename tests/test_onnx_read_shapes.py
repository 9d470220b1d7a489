"""ONNX operators whose shape is an input of the graph, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tvm  # noqa: E402
from test_onnx_slices import check, machine_of  # noqa: E402

import tvm_scatter  # noqa: E402

X = np.arange(12, dtype="float32").reshape(3, 4)


def int64(*numbers: int) -> Any:
    return np.array(numbers, "int64")


def of(text: str, cases: Sequence[Sequence[Any]], device: str = "llvm") -> Any:
    """Compare what a model makes of some inputs, and return its machine."""
    model, machine = machine_of(text, device)
    names = [each.name for each in model.graph.input]
    for case in cases:
        check(model, machine, device, dict(zip(names, case, strict=True)))
    return machine


def fails(machine: Any, given: Sequence[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        machine["main"](*map(tvm.runtime.tensor, given))


@pytest.mark.on_cpu
def test_zeros_to_scatter_into(device: str) -> None:
    text = """(int64[2] s, int64[2, 2] at, float[2] u, float[2, 1] v, int64[2, 1] i) =>
        (float[a, b] y, float[a, b] z) {
        zeros = ConstantOfShape(s) y = ScatterND<reduction = "add">(zeros, at, u)
        twos = ConstantOfShape<value = float[1] {2}>(s)
        z = ScatterElements<axis = 1, reduction = "add">(twos, i, v) }"""
    rest = np.array([[1, 1], [0, -1]]), X[0, :2], X[:2, :1], np.array([[0], [1]])
    of(text, [[int64(2, 3), *rest], [int64(5, 2), *rest]], device)


def test_constants_of_a_shape() -> None:
    text = "(int64[2] s) => (int64[a, b] y) { y = ConstantOfShape<value = int64[1] {7}>(s) }"
    machine = of(text, [[int64(2, 3)], [int64(0, 3)], [int64(1, 1)]])
    fails(machine, [int64(2, -3)], r"the size ConstantOfShape_size1 of a tensor .* but is -3\.$")
    fails(machine, [int64(2**32, 2**32)], "larger than any memory")
    text = "(int32[1] s) => (float[a] y) { long = Cast<to = 7>(s) y = ConstantOfShape(long) }"
    of(text, [[np.array([3], "int32")]])


@pytest.mark.each_device
def test_reshape_and_scatter(device: str) -> None:
    text = """(float[n, 4] x, int64[2] s, int64[1, 1] i, float[1, 1] u) => (float[a, b] y) {
        new = Reshape(x, s) y = ScatterElements<axis = 1>(new, i, u) }"""
    rest = np.array([[1]]), np.array([[50]], "float32")
    shapes = [(2, 6), (-1, 6), (6, -1), (0, -1), (-1, 0), (0, 0)]
    machine = of(text, [[X, int64(*shape), *rest] for shape in shapes], device)
    if device == "llvm":
        fails(machine, [X, int64(5, 5), *rest], r"Reshape: flattened input of size 12 .* size 25")
        fails(machine, [X, int64(-1, 5), *rest], r"Reshape: flattened input of size 12 .* size 10")
        fails(machine, [X, int64(-1, -1), *rest], "Reshape: flattened input of size 12")
        fails(machine, [X[:0], int64(0, -1), *rest], r"size Reshape_size1 .* but is -1\.$")
        fails(machine, [X[:0], int64(2**32, 2**32), *rest], "larger than any memory")


def test_reshape_to_another_rank() -> None:
    three = "(float[3, 4] x, int64[3] s) => (float[a, b, c] y) { y = Reshape(x, s) }"
    shapes = [(2, 3, 2), (-1, 3, 2), (0, 0, -1), (0, 0, 1), (0, 2, -1)]
    machine = of(three, [[X, int64(*shape)] for shape in shapes])
    fails(machine, [X, int64(1, 1, 0)], "Reshape: flattened input of size 12 .* size 0")
    fails(machine, [X, int64(2, -3, -2)], "size Reshape_size1 .* but is -3")
    one = "(float[n, 4] x, int64[1] s) => (float[a] y) { y = Reshape(x, s) }"
    of(one, [[X, int64(12)], [X, int64(-1)], [X[:0], int64(0)]])
    allowed = "(float[n, 4] x, int64[2] s) => (float[a, b] y) { y = Reshape<allowzero = 1>(x, s) }"
    machine = of(allowed, [[X[:0], int64(3, 0)], [X, int64(6, -1)]])
    fails(machine, [X, int64(0, 4)], "Reshape: flattened input of size 12 .* size 0")
    shape = "(float[n, 4] x, int64[2] s) => (int64[a, b] y) { own = Shape(x) y = Reshape(own, s) }"
    of(shape, [[X, int64(1, 2)], [X, int64(-1, 1)]])


@pytest.mark.each_device
def test_pads(device: str) -> None:
    text = """(float[n, 4] x, int64[4] p, float v, int64[2] q, int64[1, 5] i, float[1, 5] u) =>
        (float[a, b] y, float[c, d] z) {
        zeros = Pad(x, p) y = ScatterElements(zeros, i, u)
        axes = Constant<value = int64[1] {-1}>() z = Pad(x, q, v, axes) }"""
    rest = np.array([[1, 0, 0, 1, 1]]), np.arange(5, dtype="float32")[None] + 50
    number = np.array(3, "float32")
    pads = [(1, 0, 2, 1), (-1, 0, 1, 2), (-2, 2, 1, -1), (0, 1, 0, 0)]
    cases = [[X, int64(*each), number, int64(2, -1), *rest] for each in pads]
    machine = of(text, [*cases, [X[:0], int64(2, 1, 0, 0), number, int64(0, 0), *rest]], device)
    if device == "llvm":
        for wrong, said in (
            ((-2, 0, -2, 1), "negative size -1, because dimension 0 of x has size 3 and Pad_size0"),
            ((2**63 - 1, 0, 2**63 - 1, 1), "larger than any memory"),
            ((-(2**63), 0, -(2**63), 1), "negative size"),
        ):
            fails(machine, [X, int64(*wrong), number, int64(0, 0), *rest], said)


@pytest.mark.parametrize("inputs, call, said", [
    ("int64[4] p", 'Pad<mode = "edge">(x, p)', "Pad: in mode 'edge' pads that are known at run ti"),
    ("int64[2] p, int64[1] a", "Pad(x, p, , a)", "Pad: axes that are known at run time only are"),
    ("int64[2] p", "Pad(x, p)", r"Pad: a vector of sizes of shape \(2,\) does not match .* \(4,\)"),
    ("int64[2] p) <int64[1] a = {2}", "Pad(x, p, , a)", "Pad: axis 2 must be at least -2 and less"),
])  # fmt: skip
def test_pads_that_are_refused(inputs: str, call: str, said: str) -> None:
    inputs, _, constants = inputs.partition(")")
    constants = constants and f"{constants}>"
    result = f"(float[a, b] y) {constants} {{ y = {call} }}"
    with pytest.raises(tvm_scatter.ScatterError, match=said):
        machine_of(f"(float[3, 4] x, {inputs}) => {result}", "llvm")


@pytest.mark.each_device
def test_repeats(device: str) -> None:
    text = "(float[n, 4] x, int64[2] s) => (float[a, b] y) { y = Tile(x, s) }"
    machine = of(text, [[X, int64(*each)] for each in ((2, 3), (1, 1), (0, 1))], device)
    if device == "llvm":
        fails(machine, [X, int64(-1, 1)], "negative size -3, because .* Tile_size0 is -1")
        # These products are 4 and 0 in 64 bits.
        for number in (2**62 + 1, 2**62):
            fails(machine, [X, int64(1, number)], f"larger than any memory, .* is {number}")
        # And these are 0, 4 and -2^63, of as many rows as columns.
        square = np.ones((4, 4), "float32")
        for number in (-(2**62), -(2**62) + 1, -(2**61)):
            for at, sizes in enumerate((int64(number, 1), int64(1, number))):
                said = f"a tensor would have a negative size, because .*Tile_size{at} is {number}"
                fails(machine, [square, sizes], said)
        fails(machine, [square, int64(2**61, 1)], f"larger than any memory, .* is {2**61}")
        plain = "(float[2] x, int64[1] s) => (float[a] y) { y = Tile(x, s) }"
        fails(of(plain, [[X[0, :2], int64(3)]]), [X[0, :2], int64(2**63 - 1)], "than any memory")
