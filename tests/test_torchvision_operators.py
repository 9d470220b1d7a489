"""Operators of torchvision on boxes and images, against what they are said to compute."""

from __future__ import annotations

import importlib.util
import inspect
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

import torch_harness  # noqa: E402
from models.libraries import LIBRARY  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

BOXES = [[0, 2.0, 3, 9, 12], [1, -1, 0, 16, 7], [1, 3, 1, 5, 14], [0, 6, 5, 8, 6]]
#: Outside of an image, and of no size: there, the form of ``roi_align`` in PyTorch is another one.
OTHERS = [[1, 3.0, 1, 5, 20], [0, -9, -9, 30, 30], [0, 6, 6, 2, 2]]


def rounded(number: float) -> int:
    """Halves away from zero."""
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)


def greatest(x: Any, rois: Any, scale: float, rows: int, columns: int) -> tuple[Any, Any]:
    """``roi_pool``, box by box. Of an empty part the greatest element is 0."""
    result = x.new_zeros(len(rois), x.shape[1], rows, columns)
    for box, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (rounded(corner * scale) for corner in corners)
        height, width = max(bottom - top + 1, 1) / rows, max(right - left + 1, 1) / columns
        for i in range(rows):
            for j in range(columns):
                ys = slice(max(top + int(i * height), 0), max(top + math.ceil((i + 1) * height), 0))
                xs = slice(max(left + int(j * width), 0), max(left + math.ceil((j + 1) * width), 0))
                part = x[int(image), :, ys, xs].flatten(1)
                if part.shape[1]:
                    result[box, :, i, j] = part.amax(1)
    return result, torch.zeros_like(result, dtype=torch.int32)


def deformed(x: Any, weight: Any, offset: Any, mask: Any, bias: Any, *given: Any) -> Any:
    """``deform_conv2d``: each tap of the kernel reads a moved image."""
    *numbers, groups, parts, use_mask = given
    stride, padding, dilation = numbers[:2], numbers[2:4], numbers[4:6]
    height, width = x.shape[2:]
    columns = []
    for part, image in enumerate(x.chunk(parts, 1)):
        taps = []
        for i in range(weight.shape[2]):
            for j in range(weight.shape[3]):
                tap = (part * weight.shape[2] + i) * weight.shape[3] + j
                y = (
                    torch.arange(offset.shape[2])[:, None] * stride[0]
                    - padding[0]
                    + i * dilation[0]
                )
                z = torch.arange(offset.shape[3]) * stride[1] - padding[1] + j * dilation[1]
                y, z = y + offset[:, 2 * tap], z + offset[:, 2 * tap + 1]
                place = torch.stack([2 * z / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
                read = functional.grid_sample(image, place, align_corners=True)
                taps.append(read * mask[:, tap : tap + 1] if use_mask else read)
        columns.append(torch.stack(taps, 2))
    matrix = torch.cat(columns, 1).flatten(3).reshape(len(x), groups, -1, offset[0, 0].numel())
    filters = weight.reshape(groups, -1, matrix.shape[2])
    return (filters @ matrix).reshape(len(x), -1, *offset.shape[2:]) + bias[:, None, None]


if LIBRARY is not None:
    # Its shapes are registered when torchvision is imported, its kernels are not there.
    from torchvision.ops.roi_align import _roi_align

    for name, function in (
        # As it is written: torchvision would compile it by torch.compile, which takes seconds.
        ("roi_align", inspect.unwrap(_roi_align)),
        ("roi_pool", greatest),
        ("deform_conv2d", deformed),
    ):
        LIBRARY.impl(name, function, "CPU")

    def aligned_shape(x: Any, rois: Any, _: float, *size: Any) -> Any:
        return x.new_empty(rois.shape[0], x.shape[1], *size[:2])

    LIBRARY.impl("roi_align", aligned_shape, "Meta")
    LIBRARY.impl(
        "roi_pool", lambda *given: (aligned_shape(*given), aligned_shape(*given).int()), "Meta"
    )
    LIBRARY.impl(
        "deform_conv2d",
        lambda x, weight, offset, *_: x.new_empty(x.shape[0], len(weight), *offset.shape[2:]),
        "Meta",
    )


@pytest.mark.turns(4)
@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align(aligned: bool, ratio: int, device: str) -> None:
    def pooled(x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 2, 3, ratio, aligned)

    torch_harness.check(pooled, torch.randn(2, 3, 8, 9), torch.tensor(BOXES), device=device)


def test_an_aligned_box_begins_half_a_pixel_before() -> None:
    """Of pixels 0 to 7 in each row, a box from 2 to 6 at half the size covers 0.5 to 2.5."""

    def pooled(x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 1, 2, 1, True)

    x = torch.arange(8.0).repeat(8, 1)[None, None]
    rois = torch.tensor([[0, 2.0, 2, 6, 6]])
    assert pooled(x, rois).flatten().tolist() == [1.0, 2.0]
    [found] = torch_harness.through_tvm(pooled, [x, rois])
    assert found.flatten().tolist() == [1.0, 2.0]


def test_halves_stay_halves() -> None:
    """They are interpolated in single precision."""

    def pooled(x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 2, 3, 2, True)

    torch_harness.check(pooled, torch.randn(2, 3, 8, 9).half(), torch.tensor(BOXES).half())


def test_roi_pool(device: str) -> None:
    def pooled(x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_pool(x, rois, 0.5, 2, 3)[0]

    rois = torch.tensor(BOXES + OTHERS)
    torch_harness.check(pooled, torch.randn(2, 3, 8, 9), rois, device=device)


@pytest.mark.parametrize("bounds", ["raise", "drop"])
def test_boxes_of_no_image(bounds: str, device: str) -> None:
    """TVM would read what lies before or behind the images."""

    def pooled(x: Any, rois: Any) -> Any:
        aligned = torch.ops.torchvision.roi_align(x, rois, 0.5, 2, 3, 2, False)
        return aligned, torch.ops.torchvision.roi_pool(x, rois, 0.5, 2, 3)[0]

    x, boxes = torch.randn(2, 3, 8, 9), torch.tensor(BOXES)
    program = torch_harness.export(pooled, [x, boxes])
    with tvm_scatter.options(bounds=bounds):
        machine = torch_harness.compile_for(from_exported_program(program), device)
    # What is no number becomes an integer that depends on the machine.
    for image in (2, 10_000_000, -1, -10_000_000, *([math.nan] if bounds == "drop" else [])):
        boxes[1, 0] = image
        if bounds == "raise":
            with pytest.raises(ValueError, match="the number of a box's image"):
                torch_harness.run(machine, [x, boxes], device)
        else:
            found = torch_harness.run(machine, [x, boxes], device)
            others = [0, 2, 3]
            for result, right in zip(found, pooled(x, boxes[others]), strict=True):
                torch_harness.assert_same(result[others], right)


CONVOLUTIONS = {
    "plain": ((3, 3), (1, 1, 1, 1, 1, 1), 1, 1),
    "groups": ((3, 2), (2, 2, 0, 0, 1, 1), 2, 1),
    "parts that move apart": ((2, 3), (1, 2, 2, 1, 2, 1), 1, 2),
    "both": ((1, 1), (1, 1, 0, 0, 1, 1), 2, 4),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("kind", "use_mask"),
    [
        pytest.param(kind, use_mask, marks=() if at % 2 == use_mask else pytest.mark.exhaustive)
        for use_mask in (True, False)
        for at, kind in enumerate(CONVOLUTIONS)
    ],
)
@pytest.mark.on_cpu
def test_deform_conv2d(kind: str, use_mask: bool, device: str) -> None:
    kernel, steps, groups, parts = CONVOLUTIONS[kind]
    weight, bias = torch.randn(6, 4 // groups, *kernel), torch.randn(6)
    per_place = parts * math.prod(kernel)

    def convolved(x: Any, offset: Any, mask: Any) -> Any:
        return torch.ops.torchvision.deform_conv2d(
            x, weight, offset, mask, bias, *steps, groups, parts, use_mask
        )

    def inputs(images: int, *size: int) -> list[Any]:
        wanted = [
            (size[i] + 2 * steps[2 + i] - steps[4 + i] * (kernel[i] - 1) - 1) // steps[i] + 1
            for i in (0, 1)
        ]
        offset = torch.randn(images, 2 * per_place, *wanted) * 2
        return [torch.randn(images, 4, *size), offset, torch.rand(images, per_place, *wanted)]

    sizes = {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}
    program = torch_harness.export(convolved, inputs(2, 8, 9), [sizes] * 3)
    machine = torch_harness.compile_for(from_exported_program(program), device)
    for size in ((2, 8, 9), (3, 10, 5)):
        given = inputs(*size)
        [found] = torch_harness.run(machine, given, device)
        torch_harness.assert_same(found, convolved(*given), f"{size}")
