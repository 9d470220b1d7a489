"""Assignments as torch.onnx writes them, and operators beside scatters, against onnxruntime."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from onnx import parser  # noqa: E402
from test_onnx_import import run  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
Array = np.ndarray[Any, Any]


#: What is written, and the inputs that it takes.
INPUTS = {
    "x": torch.arange(24.0).reshape(4, 6),
    "i": torch.tensor([2, 0]),
    "j": torch.tensor([1, -1]),
    "m": torch.tensor([True, False, True, False]),
    "e": torch.arange(24).reshape(4, 6) % 3 == 0,
    "v": torch.arange(12.0).reshape(2, 6) + 100,
    "two": torch.tensor([50.0, 60.0]),
    "wide": torch.ones(4, 2),
    "at": torch.tensor([[0, 1, 2, 3, 0, 1], [3, 2, 1, 0, 2, 3]]),
}
ASSIGNMENTS = (
    "x[m] = v", "x[e] = -1.0", "x[i] = v", "x[i] = 3.0", "x[i, j] += two", "x[:, 1:3] = wide",
    "x[1:3, ::2] = 5.0",
)  # fmt: skip
CALLS = (
    "x.index_put((i, j), two)", "x.index_put((i,), v, accumulate=True)", "x.index_add(0, i, v)",
    "x.index_copy(0, i, v)", "x.index_fill(0, i, 3.0)", "x.scatter(0, at, v)",
    "x.scatter(0, at, 2.0)", "x.scatter_add(0, at, v)", "x.masked_fill(e, 2.0)",
    "x.masked_scatter(e, v)", "x[m]", "m.nonzero()", "torch.nn.functional.one_hot(i, 5)",
)  # fmt: skip
#: What torch.onnx writes in some opsets only.
SINCE = {
    16: tuple(f"x.scatter_reduce(0, at, v, {how!r})" for how in ("sum", "prod", "amax", "amin")),
    18: ("torch.nn.functional.fold(x.reshape(1, 8, 3), (2, 4), (2, 2))",),
}


class Written(torch.nn.Module):
    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__()
        self.texts = texts

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        given = dict(zip(INPUTS, inputs, strict=True))
        return tuple(_result(text, {**given, "torch": torch}) for text in self.texts)


def _result(text: str, given: dict[str, Any]) -> Any:
    """What an expression is, or ``x`` after an assignment."""
    if text not in ASSIGNMENTS:
        return eval(text, given)
    given["x"] = given["x"].clone()
    exec(text, given)
    return given["x"]


def written(texts: Sequence[str], opset: int) -> Any:
    """The model that torch.onnx's older exporter makes; see test_onnx_exporters.py for both."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Written(texts),
            tuple(INPUTS.values()),
            buffer,
            opset_version=opset,
            dynamo=False,
            input_names=list(INPUTS),
        )
    return onnx.load_from_string(buffer.getvalue())


def expected(model: Any, inputs: dict[str, Array]) -> list[Array]:
    """The results of onnxruntime."""
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def compare(model: Any, inputs: dict[str, Array], names: Sequence[str] = ("",)) -> None:
    given = {each.name: inputs[each.name] for each in model.graph.input}
    wanted = expected(model, given)
    for name, actual, right in zip(names, run(model, list(given.values())), wanted, strict=True):
        assert actual.dtype == right.dtype and actual.shape == right.shape, name
        np.testing.assert_allclose(actual, right, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "opset", (*(pytest.param(old, marks=pytest.mark.exhaustive) for old in (13, 17)), 18)
)
def test_what_torch_writes(opset: int) -> None:
    texts = [*ASSIGNMENTS, *CALLS]
    texts += [text for since, more in SINCE.items() if opset >= since for text in more]
    compare(written(texts, opset), {name: each.numpy() for name, each in INPUTS.items()}, texts)


def test_too_few_values_for_a_mask() -> None:
    model = written(["x.masked_scatter(e, v)"], 17)
    given = {each.name: INPUTS[each.name].numpy() for each in model.graph.input}
    given["e"] = np.ones_like(given["e"])
    with pytest.raises(ValueError, match=r"ScatterND: updates of size 12 .* which is 24"):
        run(model, list(given.values()))


HEAD = '<ir_version: 10, opset_import: ["" : 18]> g '
#: As torch.onnx's newer exporter writes a row for each true position of a mask.
MASKED = """(float[4,6] x, bool[4] m, float[6] row, int64[2] given) => (float[4,6] y) {
    places = NonZero(m)
    indices = Transpose<perm = [1, 0]>(places)
    %s
    updates = Expand(row, sizes)
    y = ScatterND(x, indices, updates)
}"""
SIZES = {
    "shape": """all = Shape(indices)  zero = Constant<value = int64[1] {0}>()
        count = Gather<axis = 0>(all, zero)  six = Constant<value = int64[1] {6}>()
        sizes = Concat<axis = 0>(count, six)""",
    "start": """count = Shape<start = 0, end = 1>(indices)  six = Constant<value = int64[1] {6}>()
        sizes = Concat<axis = 0>(count, six)""",
    "input": "sizes = Identity(given)",
}


@pytest.mark.parametrize("how", SIZES)
def test_a_row_for_each_true_position(how: str) -> None:
    model = parser.parse_model(HEAD + MASKED % SIZES[how])
    x, mask = np.arange(24, dtype="float32").reshape(4, 6), np.array([True, False, True, False])
    inputs = {"x": x, "m": mask, "row": x[3] + 50, "given": np.array([2, 6])}
    compare(model, inputs)
    if how == "input":
        with pytest.raises(ValueError, match=r"ScatterND: updates of size 3 .* which is 2"):
            run(model, list({**inputs, "given": np.array([3, 6])}.values()))


@pytest.mark.parametrize("axis", (0, 1, -1))
def test_one_hot_of_any_depth(axis: int) -> None:
    text = """(int64[2,3] i, int64 depth, float[2] values) => (float[a,b,c] y) {
        y = OneHot<axis = %d>(i, depth, values)
    }"""
    model = parser.parse_model(HEAD + text % axis)
    indices = np.array([[0, -1, 4], [2, 9, -9]])
    for depth in (5, 3):
        inputs = {"depth": np.array(depth), "values": np.array([2, 7], "float32")}
        compare(model, {"i": indices, **inputs})


def test_one_hot_of_a_depth_in_a_vector() -> None:
    text = """(int64[2,3] i) => (float[2,3,5] y)
        <int64[1] depth = {5}, float[2] values = {2, 7}> { y = OneHot(i, depth, values) }"""
    compare(parser.parse_model(HEAD + text), {"i": np.array([[0, -1, 4], [2, 9, -9]])})


@pytest.mark.parametrize("axes", ("time_axis = 0, batch_axis = 1", "time_axis = 1, batch_axis = 0"))
def test_sequences_are_reversed(axes: str) -> None:
    """Half of them are as long as they can be; onnxruntime takes no length of zero."""
    text = "(float[4,4,t] x, int64[4] n) => (float[4,4,t] y) { y = ReverseSequence<%s>(x, n) }"
    x = np.arange(96, dtype="float32").reshape(4, 4, 6)
    compare(parser.parse_model(HEAD + text % axes), {"x": x, "n": np.array([4, 1, 3, 4])})


def test_sequences_reversed_from_behind_their_end() -> None:
    """A length that is no length of the sequences damages nothing."""
    text = "(float[3,2] x, int64[2] n) => (float[3,2] y) { y = ReverseSequence(x, n) }"
    x = np.arange(6, dtype="float32").reshape(3, 2)
    (got,) = run(parser.parse_model(HEAD + text), [x, np.array([2**40, -3])])
    assert np.array_equal(got, np.stack([x[::-1, 0], x[:, 1]], 1))


@pytest.mark.turns(2)
@pytest.mark.parametrize("batch", ("2", "n"))
@pytest.mark.parametrize(
    "attributes, windows",
    [("", 20), ("pads = [1, 0, 2, 1]", 42), ("strides = [2, 1]", 10), ("dilations = [2, 3]", 9)],
)
def test_windows_are_added_to_an_image(batch: str, attributes: str, windows: int) -> None:
    attributes = f"<{attributes}>" if attributes else ""
    text = f"""(float[{batch},12,{windows}] x) => (float[{batch},3,5,6] y)
        <int64[2] image = {{5, 6}}, int64[2] block = {{2, 2}}> {{
        y = Col2Im{attributes}(x, image, block)
    }}"""
    x = np.arange(2 * 12 * windows, dtype="float32").reshape(2, 12, windows)
    compare(parser.parse_model(HEAD + text), {"x": x})


def test_windows_that_do_not_fit_an_image() -> None:
    text = """(float[1,8,5] x, int64[2] image, int64[2] block) => (float[a,b,c,d] y) {
        y = Col2Im(x, image, block)
    }"""
    x, block = np.zeros((1, 8, 5), "float32"), np.array([2, 2])
    with pytest.raises(ValueError, match=r"Col2Im: input of size 5 .* must have size 6"):
        run(parser.parse_model(HEAD + text), [x, np.array([3, 4]), block])
    with pytest.raises(tvm_scatter.ScatterError, match=r"Col2Im: .* of as many sizes"):
        run(parser.parse_model(HEAD + text.replace("int64[2] b", "int64[3] b")), [])


def test_a_pooled_shape_that_does_not_fit() -> None:
    text = """(float[1,1,2,2] x, int64[1,1,2,2] i) => (float[1,1,3,4] y)
        <int64[4] wanted = {1, 1, 3, 4}> {
        y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i, wanted)
    }"""
    with pytest.raises(tvm_scatter.ScatterError, match=r"MaxUnpool: an output_shape \(1, 1, 3, 4"):
        run(parser.parse_model(HEAD + text), [])
