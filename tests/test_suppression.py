"""Non-maximum suppression of ONNX and torchvision."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
if importlib.util.find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

import torch_harness  # noqa: E402
from models.libraries import LIBRARY  # noqa: E402
from onnx import parser  # noqa: E402
from test_onnx_idioms import HEAD, expected  # noqa: E402
from test_onnx_import import run  # noqa: E402
from torch.export import Dim  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
Array = np.ndarray[Any, Any]

if LIBRARY is not None:
    # Its shapes are registered when torchvision is imported, its kernels are not there.
    import torchvision  # noqa: F401

    LIBRARY.impl("nms", lambda *given: kept(*given), "CPU")


def kept(boxes: Any, scores: Any, limit: float) -> Any:
    """The boxes that no better one overlaps by more, one after the other."""
    chosen: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for at in scores.argsort(descending=True, stable=True).tolist():
        upper = torch.minimum(boxes[chosen, 2:], boxes[at, 2:])
        lower = torch.maximum(boxes[chosen, :2], boxes[at, :2])
        shared = (upper - lower).clamp(min=0).prod(1)
        if not (shared / (areas[chosen] + areas[at] - shared) > limit).any():
            chosen.append(at)
    return torch.tensor(chosen, dtype=torch.int64)


def boxes(count: int, images: int = 1, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    corner = rng.random((images, count, 2)) * 6
    found = np.concatenate([corner, corner + rng.random((images, count, 2)) * 5 + 0.5], 2)
    # The second overlaps the first by just a half, and some are empty.
    found[:, :2] = [[0, 0, 2, 2], [0, 0, 1, 2]]
    found[:, 4, 2:] = found[:, 4, :2]
    return found.astype("float32")


def scores(count: int, images: int = 1, classes: int = 2) -> Array:
    """Random numbers, some of which are equal."""
    return np.random.default_rng(2).integers(-20, 20, (images, classes, count)).astype("float32")


#: Inputs, their values, and attributes.
THRESHOLDS = {
    "nothing": ("b, s", {}, ""),
    "a number": ("b, s, most", {}, ""),
    "an overlap": ("b, s, most, overlap", {"overlap": 0.3}, ""),
    "one that boxes have": ("b, s, most, overlap", {"overlap": 0.5}, ""),
    "scores": ("b, s, most, overlap, least", {"overlap": 0.7, "least": -1.0}, ""),
    "no score": ("b, s, most, overlap, least", {"overlap": 0.7, "least": 90.0}, ""),
    "centers": ("b, s, most, overlap", {"overlap": 0.4}, "<center_point_box = 1>"),
}


def suppression(names: list[str], sizes: str = "2, 300") -> Any:
    images, count = sizes.split(", ")
    bodies, values = [], "int64[1] most = {40}"
    for at, name in enumerate(names):
        inputs, numbers, attributes = THRESHOLDS[name]
        for each, number in numbers.items():
            values += f", float[1] {each}{at} = {{{number}}}"
            inputs = inputs.replace(each, f"{each}{at}")
        bodies.append(f"y{at} = NonMaxSuppression{attributes}({inputs})")
    results = ", ".join(f"int64[a{at}, c{at}] y{at}" for at in range(len(names)))
    given = f"float[{images}, {count}, 4] b, float[{images}, c, {count}] s"
    return parser.parse_model(
        f"{HEAD} ({given}) => ({results}) <{values}> {{ {chr(10).join(bodies)} }}"
    )


@pytest.mark.parametrize("sizes", ["2, 300", "images, count"])
@pytest.mark.on_cpu
def test_onnx(sizes: str, device: str) -> None:
    names = list(THRESHOLDS)
    if sizes != "2, 300":
        names = ["scores"]
    model = suppression(names, sizes)
    given = {"b": boxes(300, 2), "s": scores(300, 2)}
    # Corners in any order.
    given["b"][0, 10:20] = given["b"][0, 10:20][:, [2, 1, 0, 3]]
    found = run(model, list(given.values()), device)
    for name, actual, right in zip(names, found, expected(model, given), strict=True):
        np.testing.assert_array_equal(actual, right, err_msg=name)


def best(found: Any, values: Any) -> Any:
    chosen = torch.ops.torchvision.nms(found, values, 0.4)
    return chosen, found[chosen], values[chosen]


def test_torchvision(device: str) -> None:
    number = Dim("number", min=5, max=1000)
    example = [torch.tensor(boxes(9)[0]), torch.randn(9)]
    program = torch_harness.export(best, example, [{0: number}, {0: number}])
    machine = torch_harness.compile_for(from_exported_program(program), device)
    for count in (9, 400):
        given = [torch.tensor(boxes(count)[0]), torch.randn(count)]
        given[1][3] = math.nan  # The best of all.
        results = torch_harness.run(machine, given, device)
        chosen = kept(*given, 0.4)
        for result, right in zip(results, (chosen, *(x[chosen] for x in given)), strict=True):
            torch_harness.assert_same(result, right)


def test_a_class_of_its_own_for_each_box(device: str) -> None:
    """As torchvision's ``batched_nms`` does it: boxes of other classes are moved away."""

    def batched(found: Any, values: Any, classes: Any) -> Any:
        offsets = classes.to(found) * (found.max() + 1)
        return torch.ops.torchvision.nms(found + offsets[:, None], values, 0.4)

    given = [torch.tensor(boxes(50)[0]).double(), torch.randn(50).double(), torch.arange(50) % 3]
    torch_harness.check(batched, *given, device=device)
