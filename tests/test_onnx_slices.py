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

import tvm_scatter  # noqa: E402

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


LEAST, MOST = -(2**63), 2**63 - 1
#: Starts, ends and steps along six rows.
PLACES = [
    (1, 3, 1), (-4, -1, 1), (0, MOST, 1), (4, 2, 1), (-1, -3, 1), (LEAST, 2**62, 1), (100, 200, 1),
    (LEAST, MOST, 3), (0, 6, 2**62), (0, 6, MOST), (-1, -100, -1), (5, LEAST, -2), (2, 4, -1),
    (MOST, LEAST, -1), (-100, -200, -1), (-7, LEAST, LEAST), (-1, LEAST, -3), (4, -4, -2),
    (100, 1, -2), (-3, -2, -1), (MOST, LEAST, -2), (MOST - 1, MOST, 1), (0, MOST, 2), (1, MOST, 1),
    (LEAST, LEAST + 1, 1), (0, 2**62, 1), (2**60, 2**61, 1), (2**60, 1, -3), (3, 2**60, -1),
]  # fmt: skip
ROWS = np.arange(24, dtype="float32").reshape(6, 4)


@pytest.mark.parametrize("size", ["6", "n"])
def test_constant_places(size: str) -> None:
    """All in one model, since each is quick."""
    zero = "zero = Constant<value = int64[1] {0}>() "
    lines = [
        f"a{at} = Constant<value = int64[1] {{{start}}}>() "
        f"b{at} = Constant<value = int64[1] {{{end}}}>() "
        f"c{at} = Constant<value = int64[1] {{{step}}}>() "
        f"y{at} = Slice(x, a{at}, b{at}, zero, c{at})"
        for at, (start, end, step) in enumerate(PLACES)
    ]
    results = ", ".join(f"float[p{at}, q{at}] y{at}" for at in range(len(PLACES)))
    text = f"(float[{size}, 4] x) => ({results}) {{ {zero} {' '.join(lines)} }}"
    model, machine = machine_of(text, "llvm")
    for rows in (6,) if size == "6" else (6, 1, 0):
        given = {"x": ROWS[:rows]}
        for result, right, place in zip(
            machine["main"](tvm.runtime.tensor(given["x"])),
            expected(model, given),
            PLACES,
            strict=True,
        ):
            np.testing.assert_array_equal(result.numpy(), right, f"{place} of {rows} rows")


def test_places_that_are_inputs_on_a_device(device: str) -> None:
    text = """(float[n, 4] x, int64[1] from, int64[1] to, int64[1] steps) => (float[a, b] y) {
        axes = Constant<value = int64[1] {0}>() y = Slice(x, from, to, axes, steps) }"""
    model, machine = machine_of(text, device)
    for place in PLACES[3::9]:
        pairs = zip(("from", "to", "steps"), place, strict=True)
        given = {name: np.array([number]) for name, number in pairs}
        check(model, machine, device, {"x": ROWS, **given})


def test_places_and_axes_that_are_inputs() -> None:
    text = """(float[n, 4] x, int64[2] from, int64[2] to, int64[2] axes, int64[2] steps) =>
        (float[a, b] y) { y = Slice(x, from, to, axes, steps) }"""
    device = "llvm"
    model, machine = machine_of(text, device)

    def given(first: Any, second: Any = (0, 4, 3), axes: Any = (0, -1), rows: int = 6) -> Any:
        starts, ends, steps = map(np.array, zip(first, second, strict=True))
        return {
            "x": ROWS[:rows],
            "from": starts,
            "to": ends,
            "axes": np.array(axes),
            "steps": steps,
        }

    for place in PLACES:
        check(model, machine, device, given(place))
    check(model, machine, device, given((-1, LEAST, -1), (4, 1, 1), (-1, 0)))
    check(model, machine, device, given((1, 3, 1), rows=0))
    check(model, machine, device, given((-1, LEAST, -2), rows=0))
    for wrong, said in (
        (given((0, 6, 0)), r"Slice: a step is 0; it must not be 0\.$"),
        (given((0, 6, 1), axes=(0, 2)), "Slice: an axis, counted from the front, is 2; it must be"),
        (given((0, 6, 1), axes=(0, -3)), "is -1; it must not be negative"),
    ):
        with pytest.raises(ValueError, match=said):
            check(model, machine, device, wrong)


@pytest.mark.parametrize("rest, said", [
    ("int64[k] from, int64[k] to", "Slice: a vector of type .* its length must be a known number"),
    ("int64[1] from, int64[2] to", r"starts, ends, axes and steps must .* have lengths \[1, 2\]"),
    ("int64[1] from, int64[1] to) <int64[1] axes = {3}", r"Slice: axis 3 must be at least -2 and"),
    ("int64[1] from, int64[1] to) <int64[1] axes = {1}, int64[1] steps = {0}", "a step is 0; it"),
])  # fmt: skip
def test_places_that_are_refused(rest: str, said: str) -> None:
    more = ", axes, steps" if "steps" in rest else ", axes" if "axes" in rest else ""
    inputs, _, constants = rest.partition(")")
    constants = constants and f"{constants}>"
    result = f"(float[a, b] y) {constants} {{ y = Slice(x, from, to{more}) }}"
    with pytest.raises(tvm_scatter.ScatterError, match=said):
        machine_of(f"(float[6, 4] x, {inputs}) => {result}", "llvm")
