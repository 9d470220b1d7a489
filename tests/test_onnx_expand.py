"""ONNX's ``Expand``, whose sizes may be known at run time only, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tvm  # noqa: E402
from onnx import parser  # noqa: E402
from test_onnx_idioms import HEAD, expected  # noqa: E402
from test_onnx_import import run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402

import tvm_scatter  # noqa: E402

#: Where the sizes come from: an input, a constant, or the shape of another tensor.
SOURCES = {
    "input": ("int64[{rank}] sizes", ""),
    "constant": ("float[1] unused", "sizes = Constant<value = int64[{rank}] {{{sizes}}}>()"),
    "shape": ("float[{names}] other", "sizes = Shape(other)"),
}
NAMES = "abcd"


def model(source: str, data: str, wanted: tuple[int, ...]) -> Any:
    words = {
        "rank": len(wanted),
        "sizes": ", ".join(map(str, wanted)),
        "names": ", ".join(NAMES[: len(wanted)]),
    }
    result = ", ".join("pqrs"[: max(len(wanted), data.count(",") + 1)])
    given, made = (each.format(**words) for each in SOURCES[source])
    text = f"(float[{data}] x, {given}) => (float[{result}] y) {{ {made} y = Expand(x, sizes) }}"
    return parser.parse_model(HEAD + text)


def arrays(source: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[Any]:
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    other = {
        "input": np.array(wanted),
        "constant": np.zeros(1, "float32"),
        "shape": np.zeros(wanted if source == "shape" else 0, "float32"),
    }
    return [x, other[source]]


@pytest.mark.parametrize("source", ("input", "shape"))
@pytest.mark.parametrize(
    "data, shape, wanted",
    [
        ("1, 3", (1, 3), (4, 3)),
        ("3", (3,), (2, 4, 3)),
        ("1, 1", (1, 1), (4, 0)),
        ("m, 3", (4, 3), (4, 3)),
        ("m, 3", (1, 3), (4, 3)),
        ("m, k", (4, 1), (2, 4, 3)),
    ],
)
def test_agrees_with_onnxruntime(source: str, data: str, shape: Any, wanted: Any) -> None:
    made, given = model(source, data, wanted), arrays(source, shape, wanted)
    (right,) = expected(made, dict(zip((i.name for i in made.graph.input), given, strict=True)))
    (actual,) = run(made, given)
    np.testing.assert_array_equal(actual, right)


@pytest.mark.parametrize("source", ("input", "constant"))
@pytest.mark.parametrize(
    "data, shape, wanted",
    [("4, 3", (4, 3), (1, 1)), ("4, 3", (4, 3), (3,)), ("m, 3", (0, 3), (1, 3)),
     ("m, k", (4, 3), (2, 1, 3)), ("2, m, k", (2, 4, 3), (4, 1))],
)  # fmt: skip
def test_a_size_of_one_stays_as_it_is(source: str, data: str, shape: Any, wanted: Any) -> None:
    test_agrees_with_onnxruntime(source, data, shape, wanted)


def machine(made: Any) -> relax.VirtualMachine:
    return relax.VirtualMachine(tvm.compile(from_onnx(made), "llvm"), tvm.cpu())


@pytest.mark.parametrize("source", ("input", "shape"))
@pytest.mark.parametrize("data", ("4, 3", "m, k"))
def test_sizes_that_do_not_fit(source: str, data: str) -> None:
    made, given = model(source, data, (4, 3)), arrays(source, (4, 3), (4, 3))
    call = machine(made)["main"]
    call(*map(tvm.runtime.tensor, given))
    for wrong in ((7, 3), (2, 3), (4, 2)):
        given = arrays(source, (4, 3), wrong)
        with pytest.raises(ValueError, match=r"Expand: input of size \d in dimension \d must have"):
            call(*map(tvm.runtime.tensor, given))


def test_constant_sizes_that_do_not_fit() -> None:
    with pytest.raises(
        tvm_scatter.ScatterError, match=r"Expand: input of shape \(4, 3\) .* \(5, 3"
    ):
        from_onnx(model("constant", "4, 3", (5, 3)))


def test_constants_are_computed_at_import() -> None:
    made = model("constant", "4, 3", (4, 3))
    mod = from_onnx(made)
    assert "broadcast_to" not in mod.script()
