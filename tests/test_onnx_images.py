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

#: The parts that are taken.
PARTS = {
    "a part": "0, 0, 0.2, 0.1, 1, 1, 0.8, 0.9",
    "a part of some axes": "0.2, 0.1, 0.7, 0.9",
    "a part beyond": "0, 0, -0.5, 0.3, 1, 1, 0.6, 1.2",
}
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
    "a part": (
        "sizes", "1, 2, 4, 3",
        "mode = 'linear', coordinate_transformation_mode = 'tf_crop_and_resize'",
    ),
    "a part of some axes": (
        "sizes", "5, 1", "axes = [3, 2], coordinate_transformation_mode = 'tf_crop_and_resize'"
    ),
    "a part beyond": (
        "scales", "1, 1, 1.6, 0.5",
        "mode = 'linear', coordinate_transformation_mode = 'tf_crop_and_resize', "
        "extrapolation_value = 7.5",
    ),
    "by TVM": ("sizes", "1, 2, 10, 3", "mode = 'linear'"),
}  # fmt: skip


def resized(names: list[str]) -> Any:
    bodies = []
    for at, name in enumerate(names):
        what, numbers, attributes = RESIZES[name]
        kind = "float" if what == "scales" else "int64"
        count = len(numbers.split(","))
        places = f"r{at}, k{at}" if what == "scales" else f"r{at}, , k{at}"
        part = PARTS.get(name, "")
        bodies.append(
            f"r{at} = Constant<value = float[{len(part.split(', ')) if part else 0}] {{{part}}}>()"
        )
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


def test_a_resize_of_doubles() -> None:
    """Weights of single precision do not add up to one."""
    text = """(double[1, 1, 7, 5] x) => (double[a, b, c, d] y) {
        k = Constant<value = float[4] {1.0, 1.0, 0.7, 1.75}>()
        y = Resize<mode = "cubic">(x, , k) }"""
    x = np.full((1, 1, 7, 5), 1 / 3)
    [result] = run(parser.parse_model(HEAD + text), [x])
    np.testing.assert_allclose(result, np.full((1, 1, 4, 8), 1 / 3), rtol=1e-14)


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


@pytest.mark.parametrize("known", [True, False], ids=["known", "at run time"])
@pytest.mark.on_cpu
def test_the_middle(known: bool, device: str) -> None:
    """onnxruntime computes it by ONNX's function of slices and pads."""
    x = np.arange(30, dtype="float32").reshape(5, 2, 3)
    sizes = {"padded": [7, 2, 6], "cropped": [2, 1, 2], "both": [4, 5, 3], "rows": [2, 8]}
    bodies = " ".join(
        f"{name} = CenterCropPad{'<axes = [-1, 0]>' if name == 'rows' else ''}(x, {name}_k)"
        for name in sizes
    )
    kinds = {name: f"int64[{len(each)}] {name}_k" for name, each in sizes.items()}
    given = {"x": x}
    if known:
        numbers = [f"{kinds[name]} = {{{str(each)[1:-1]}}}" for name, each in sizes.items()]
        inputs, constants = "", f"<{', '.join(numbers)}>"
    else:
        given |= {f"{name}_k": np.array(each) for name, each in sizes.items()}
        inputs, constants = "".join(f", {kind}" for kind in kinds.values()), ""
    results = ", ".join(f"float[a{at}, b{at}, c{at}] {name}" for at, name in enumerate(sizes))
    text = f"(float[5, 2, 3] x{inputs}) => ({results}) {constants} {{ {bodies} }}"
    model = parser.parse_model(HEAD + text)
    found = run(model, list(given.values()), device)
    for name, actual, right in zip(sizes, found, expected(model, given), strict=True):
        np.testing.assert_array_equal(actual, right, err_msg=name)


def test_the_middle_of_too_few_sizes() -> None:
    text = "(float[5, 2] x) => (float[a, b] y) <int64[1] k = {3}> { y = CenterCropPad(x, k) }"
    said = "CenterCropPad: 1 sizes are given, but there must be 2"
    with pytest.raises(tvm_scatter.ScatterError, match=said):
        run(parser.parse_model(HEAD + text), [])


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "int16"])
def test_the_greatest_of_integers(dtype: str) -> None:
    """TVM sorts none of these types."""
    limits = np.iinfo(dtype)
    x = np.array([[3, limits.max, 0], [limits.max - 1, 1, limits.min]], dtype)
    text = f"({dtype}[2, 3] x) => ({dtype}[a, b] y, int64[c, d] i) <int64[1] k = {{2}}> "
    found = run(parser.parse_model(HEAD + text + "{ y, i = TopK(x, k) }"), [x])
    np.testing.assert_array_equal(found[0], [[limits.max, 3], [limits.max - 1, 1]])
    assert found[0].dtype == x.dtype
    np.testing.assert_array_equal(found[1], [[1, 0], [0, 1]])
