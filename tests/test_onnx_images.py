"""ONNX operators of images and boxes beside scatters that TVM's importer reads in its own way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import parser  # noqa: E402
from test_onnx_idioms import HEAD, compare, expected  # noqa: E402
from test_onnx_import import run  # noqa: E402

import tvm_scatter  # noqa: E402

Array = np.ndarray[Any, Any]

#: How x (1, 2, 5, 6) is resized: the scales or the sizes, and attributes.
RESIZES = {
    "rounded sizes": ("scales", "1, 1, 1.5, 1.7", "mode = 'linear'"),
    "rounded places": ("scales", "1, 1, 1.5, 0.7", "nearest_mode = 'floor'"),
    "cubic": ("scales", "1, 1, 0.6, 1.3", "mode = 'cubic', exclude_outside = 1"),
    "smoothed": ("sizes", "1, 2, 3, 4", "mode = 'linear', antialias = 1"),
    "symmetric": (
        "scales", "1, 1, 1.5, 1.7", "coordinate_transformation_mode = 'half_pixel_symmetric'"
    ),
    "one": ("sizes", "1, 2, 1, 4",
            "mode = 'linear', coordinate_transformation_mode = 'align_corners'"),
    "some axes": ("scales", "2.5, 0.5", "axes = [3, 2], mode = 'linear'"),
    "in proportion": (
        "sizes", "7, 9", "axes = [2, 3], keep_aspect_ratio_policy = 'not_larger'"
    ),
    "by TVM": ("sizes", "1, 2, 10, 3", "mode = 'linear'"),
}  # fmt: skip


def resized(names: list[str]) -> Any:
    bodies = []
    for at, name in enumerate(names):
        what, numbers, attributes = RESIZES[name]
        kind = "float" if what == "scales" else "int64"
        count = len(numbers.split(","))
        places = f", k{at}" if what == "scales" else f", , k{at}"
        attributes = attributes.replace("'", '"')
        bodies.append(
            f"k{at} = Constant<value = {kind}[{count}] {{{numbers}}}>()\n"
            f"y{at} = Resize<{attributes}>(x, {places})"
        )
    results = ", ".join(f"float[a, b, c{at}, d{at}] y{at}" for at in range(len(names)))
    text = "\n".join(bodies)
    return parser.parse_model(f"{HEAD} (float[1, 2, 5, 6] x) => ({results}) {{ {text} }}")


def test_resizes() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype("float32")
    names = list(RESIZES)
    model = resized(names)
    for name, actual, right in zip(names, run(model, [x]), expected(model, {"x": x}), strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_resize_of_any_batch() -> None:
    """As torch.onnx writes ``interpolate`` to a size, of a batch that varies."""
    text = """(float[n, 2, 5, 6] x) => (float[a, b, c, d] y) {
        batch = Shape<start = 0, end = 2>(x) image = Constant<value = int64[2] {7, 9}>()
        sizes = Concat<axis = 0>(batch, image) y = Resize<mode = "linear">(x, , , sizes) }"""
    model = parser.parse_model(HEAD + text)
    x = np.random.default_rng(0).standard_normal((3, 2, 5, 6)).astype("float32")
    np.testing.assert_allclose(
        run(model, [x])[0], expected(model, {"x": x})[0], rtol=1e-4, atol=1e-5
    )


def test_a_resize_that_is_refused() -> None:
    text = "(uint8[1, 1, 5, 6] x) => (uint8[a, b, c, d] y) <float[4] k = {1, 1, 1.5, 1.5}> "
    body = '{ y = Resize<mode = "linear">(x, , k) }'
    with pytest.raises(tvm_scatter.ScatterError, match=r"Resize: mode 'linear' of uint8"):
        run(parser.parse_model(HEAD + text + body), [])


def boxes(count: int) -> Array:
    corner = np.random.default_rng(0).random((count, 2)) * 6
    size = np.random.default_rng(1).random((count, 2)) * 5 + 0.5
    return np.concatenate([corner, corner + size], 1).astype("float32")


def test_regions_are_shifted_behind_their_scale() -> None:
    text = """(float[2, 2, 8, 9] x, float[n, 4] r, int64[n] i) => (float[a, b, c, d] y) {
        y = RoiAlign<spatial_scale = 0.5, output_height = 2, output_width = 3>(x, r, i) }"""
    x = np.random.default_rng(0).standard_normal((2, 2, 8, 9)).astype("float32")
    model = parser.parse_model(HEAD + text)
    x, regions = x * 0 + np.arange(9, dtype="float32"), boxes(3)
    inputs = {"x": x, "r": regions, "i": np.array([0, 1, 1])}
    compare(model, inputs)
    other = parser.parse_model(HEAD + text.replace("<sp", '<mode = "max", sp'))
    with pytest.raises(tvm_scatter.ScatterError, match="RoiAlign: mode 'max' is not supported"):
        run(other, [])


def test_a_threshold_of_the_run_time() -> None:
    text = """(float[1, 8, 4] b, float[1, 2, 8] s, float[1] o) => (int64[a, c] y)
        <int64[1] most = {4}> { y = NonMaxSuppression(b, s, most, o) }"""
    said = "NonMaxSuppression: iou_threshold is known at run time only"
    with pytest.raises(tvm_scatter.ScatterError, match=said):
        run(parser.parse_model(HEAD + text), [])


def test_unique_entries_of_a_matrix_and_the_type_of_one_hot() -> None:
    results = "int64[a] y, int64[b] i, int64[c] back, int64[d] n, float[e, f, g] h"
    text = """<int64 depth = {4}, float[2] values = {0, 1}> {
        y, i, back, n = Unique(x) h = OneHot(x, depth, values) }"""
    model = parser.parse_model(f"{HEAD} (int64[2, 3] x) => ({results}) {text}")
    compare(model, {"x": np.array([[2, 0, 2], [3, 0, -1]])}, ("y", "i", "back", "n", "h"))
