"""Maxima and minima with "not a number" and of every type, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NAN, INFINITY = float("nan"), float("inf")
FLOATS = torch.tensor(
    [[3, -1, NAN, 2, 2, -0.0], [0, INFINITY, -INFINITY, NAN, 1, 0], [4, 5, 5, -7, -7, 5]]
)
INTEGERS = torch.tensor([[3, 1, 1, -2], [7, 7, 0, 7], [-(2**40), 2**40, 1, 1]])
BOOLEANS = INTEGERS > 1


def of_two(f: Any, i: Any, b: Any) -> Sequence[Any]:
    other = f.flip(1)
    return (
        *(torch.maximum(f, other), torch.minimum(f, other), torch.fmax(f, other)),
        *(torch.fmin(f, other), torch.maximum(i, i.flip(1)), torch.minimum(b, b.flip(1))),
        *(torch.maximum(f[:, :4], i), torch.maximum(f.half(), other.half()), torch.max(f, other)),
        *(f.clamp(0, 1), f.clamp(min=0.5), f.clamp(max=1), f.clamp(NAN, 1), f.clamp(other, 2 + f)),
        *(torch.clamp_min(f, 0.5), torch.clamp_max(i, 5), i.clamp(0.5, 5.5), i.clamp(1, 5)),
        *(f.bfloat16().clamp(0, 1), torch.fmax(f.bfloat16(), other.bfloat16())),
        *(f.bfloat16() != f.bfloat16(), f.bfloat16().median()),
        *(torch.relu(f), functional.relu6(f), functional.hardtanh(f), functional.leaky_relu(f)),
        *(functional.hardswish(f), functional.hardsigmoid(f), torch.relu(i), f.half().relu()),
    )


def of_many(f: Any, i: Any, b: Any) -> Sequence[Any]:
    return (
        *(f.amax(1), f.amin(1), f.amax(0, True), f[2].amin(), f.max(), f.min(), f[2].max()),
        *(i.amax(1), i.amin((0, 1)), b.amax(0), b.amin(1, True), i.max(), b.min(), f[0, 0].max()),
        *(*f.max(1), *f.min(1), *f.max(0, True), *i.max(1), *i.min(0), *b.max(1), *b.min(1)),
        *(f.argmax(1), f.argmin(1), f.argmax(), f.argmin(0, True), i.argmax(1), i.argmin()),
        *(*f[0, 0].max(0), f[0, 0].argmax(), f.argmax(None, True), *torch.aminmax(f, dim=1)),
        *(f.half().amax(1), f.double().amin(1), *f.double().max(1), f.bfloat16().amax(0)),
        torch.softmax(f[2:], 1),
    )


@pytest.mark.parametrize("function", [of_two, of_many])
def test_extremes(function: Any) -> None:
    check(function, FLOATS, INTEGERS, BOOLEANS)


def test_extremes_on_a_gpu() -> None:
    def some(f: Any, i: Any) -> Sequence[Any]:
        return (
            *(torch.maximum(f, f.flip(1)), f.clamp(0, 1), torch.relu(f), f.amax(1), *f.min(1)),
            *(i.amin(0), f.argmax(), f.max()),
        )

    check(some, FLOATS, INTEGERS, device="cuda")


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pooled_values_that_are_not_finite(dtype: torch.dtype, device: str) -> None:
    def pooled(x: Any) -> Any:
        return functional.max_pool2d(x, 2, 1, padding=1, return_indices=True)

    low = [-float("inf")] * 3
    x = torch.tensor([[1, float("nan"), 3], low, low], dtype=dtype)[None, None]
    check(pooled, x, device=device)


LITTLE = torch.tensor([[[[1, NAN, 3], [-INFINITY, -INFINITY, -INFINITY], [-INFINITY, -1e38, 2]]]])


def pooled(x: Any) -> Sequence[Any]:
    volume = torch.stack([x, x.flip(-1)], 2)
    return (
        *(functional.max_pool2d(x, 2, 1), functional.max_pool2d(x, 2, 1, 1)),
        *(functional.max_pool2d(x[0], (2, 1), ceil_mode=True), functional.max_pool2d(x, 1, 2)),
        *(functional.max_pool3d(volume, 2, ceil_mode=True), functional.max_pool3d(volume[0], 1)),
        functional.max_pool2d(x.bfloat16(), 2, 1),
    )


def averaged(x: Any) -> Sequence[Any]:
    volume = torch.stack([x, x.flip(-1)], 2)
    return (
        functional.avg_pool2d(x, 2, 1, 1, divisor_override=3),
        functional.avg_pool2d(x[0], 2, 1, 1, True, False, divisor_override=5),
        functional.avg_pool3d(volume, 2, 1, 1, count_include_pad=False, divisor_override=3),
        # The last windows begin inside, and end behind the padding or not at all.
        functional.avg_pool2d(x, (2, 3), (3, 2), (1, 0), ceil_mode=True, divisor_override=5),
        functional.avg_pool2d(x[0], 2, 3, ceil_mode=True, divisor_override=1),
    )


def test_values_of_windows_that_are_not_finite() -> None:
    check(pooled, LITTLE)


def test_averages_of_windows_with_a_divisor() -> None:
    check(averaged, torch.arange(20.0).reshape(1, 1, 4, 5))
