"""Convolutions of every type and number of axes, with and without a bias, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import Case, check, check_all  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

CONVOLUTIONS = (
    # Shapes of input and weight, stride, padding, dilation, transposed, output padding, groups.
    ((2, 3, 7), (4, 3, 3), [2], [1], [1], False, [0], 1),
    ((2, 4, 6, 5), (6, 2, 3, 2), [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), [1, 2, 1], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1),
    ((2, 3, 5), (3, 4, 4), [3], [0], [2], True, [2], 1),
    ((2, 4, 4, 3), (4, 3, 3, 3), [2, 2], [1, 1], [1, 2], True, [1, 0], 2),
    ((1, 2, 3, 2, 2), (2, 1, 2, 2, 2), [2, 2, 2], [0, 0, 1], [1, 1, 1], True, [0, 1, 0], 1),
)


def case(convolution: Any, dtype: torch.dtype, bias: bool) -> Case:
    shape, kernel, *how = convolution
    channels = kernel[1] * how[-1] if how[3] else kernel[0]
    inputs = [torch.randn(each).to(dtype) for each in (shape, kernel, (channels,))]

    def convolved(*tensors: Any) -> Any:
        return torch.convolution(*tensors[:2], tensors[2] if bias else None, *how)

    return f"{convolution}, bias {bias}", convolved, inputs if bias else inputs[:2]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        pytest.param(torch.float16, marks=pytest.mark.exhaustive),
        pytest.param(torch.float32, marks=pytest.mark.exhaustive),
        torch.float64,
    ],
)
def test_convolution(dtype: torch.dtype) -> None:
    check_all([case(each, dtype, bias) for each in CONVOLUTIONS for bias in (True, False)])


def test_three_transposed_axes() -> None:
    check_all([case(CONVOLUTIONS[-1], torch.float32, True)])


def test_convolution_of_integers() -> None:
    image, weight = torch.arange(24).reshape(1, 2, 3, 4), torch.arange(-4, 4).reshape(1, 2, 2, 2)
    check(torch.nn.functional.conv2d, image, weight, torch.tensor([2**40]))


def test_modules_in_halves() -> None:
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 2, 2),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(4, 2, 2, padding=1),
        torch.nn.Flatten(),
        torch.nn.Linear(72, 3),
    )
    for dtype in (torch.float16, torch.bfloat16):
        check(layers.eval().to(dtype), torch.randn(2, 3, 14, 14).to(dtype))
