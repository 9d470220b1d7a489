"""Arguments of operators that are computed from sizes which vary, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

_BAGS = {mode: torch.nn.EmbeddingBag(6, 2, mode=mode) for mode in ("sum", "mean", "max")}


def padded(x: Any) -> Any:
    rows, columns = x.shape
    whole = (x * 3).long()
    return (
        functional.pad(x, (0, 0, 0, -rows % 4)).view(-1, 4, columns).sum(1),
        functional.pad(x, (-1, rows, 2, -1), value=float("-inf")),
        functional.pad(x.half(), (1, columns), value=float("nan")),
        functional.pad(whole, (rows - 1, 0), value=-(2**62) - 1),
        functional.pad(x > 0, (0, rows), value=True),
    )


def made(x: Any) -> Any:
    rows, columns = x.shape
    return (
        torch.full((3,), rows / 3),
        torch.full_like(x, columns / 7),
        torch.full((2, columns), rows / 2, dtype=torch.float64),
        x * torch.arange(0, rows * columns, columns)[:, None],
        x + torch.arange(columns, columns * (rows + 1), columns)[:, None],
        torch.arange(rows * columns, 0, -columns),
        torch.arange(1, rows + 9, columns),
        torch.arange(rows / 2),
        torch.arange(0.5, rows * 1.5, 0.7, dtype=torch.float64),
        torch.arange(columns / 2, -rows, -0.7),
        torch.ones(round(rows * 0.3) + 1),
    )


def bags(x: Any) -> Any:
    words = x.abs().long() % 6
    return tuple(bag(words).detach() for bag in _BAGS.values())


def layers(x: Any) -> Any:
    return functional.layer_norm(x, [x.shape[1]]), functional.layer_norm(x, list(x.shape))


@pytest.mark.turns(4)
@pytest.mark.parametrize("function", [padded, made, bags, layers])
def test_matrices(function: Callable[..., Any], device: str) -> None:
    sizes = (7, 5), (8, 3), (4, 9), (2, 2)
    _check(function, [torch.randn(*size) * 3 for size in sizes], {0: Dim.AUTO, 1: Dim.AUTO}, device)


def instances(x: Any) -> Any:
    weight, bias = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.0, 1.0, 2.0])
    mean, variance = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 3.0])
    return (
        functional.instance_norm(x),
        functional.instance_norm(x, weight=weight, bias=bias, eps=0.1),
        functional.instance_norm(x, mean, variance, weight, bias, use_input_stats=False),
        functional.instance_norm(x.half().flatten(2)),
        functional.layer_norm(x, x.shape[1:]),
        functional.group_norm(x, 3, weight, bias),
        functional.batch_norm(x, None, None, weight, bias, training=True),
    )


def resized(x: Any) -> Any:
    return (
        functional.interpolate(x, scale_factor=0.5),
        functional.interpolate(x, scale_factor=1 / 3),
        functional.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
        functional.interpolate(x, scale_factor=0.75, mode="bilinear"),
        functional.interpolate(x, scale_factor=1.3, mode="bilinear", align_corners=True),
        functional.interpolate(x.flatten(2), scale_factor=0.5),
        functional.interpolate(x, scale_factor=0.75, mode="bicubic"),
    )


def smoothed(x: Any) -> Any:
    smaller = partial(functional.interpolate, antialias=True)
    return (
        smaller(x, scale_factor=0.6, mode="bilinear"),
        smaller(x, (4, 7), mode="bilinear", align_corners=True),
        smaller(x.double(), (x.shape[3], 3), mode="bicubic"),
    )


def greatest(x: Any) -> Any:
    return (
        functional.adaptive_max_pool2d(x, 1),
        functional.adaptive_max_pool2d(x.double(), (2, 3), return_indices=True),
        functional.adaptive_max_pool1d(x[0], 3),
        functional.adaptive_max_pool3d(x, (1, 2, 2)),
    )


def averages(x: Any) -> Any:
    return (
        functional.interpolate(x, scale_factor=0.5, mode="area"),
        functional.adaptive_avg_pool2d(x.half(), (None, 2)),
        functional.adaptive_avg_pool3d(x, (1, x.shape[2] - 1, 2)),
    )


@pytest.mark.turns(3)
@pytest.mark.parametrize("function", [instances, resized, smoothed, greatest, averages])
@pytest.mark.on_cpu
def test_images(function: Callable[..., Any], device: str) -> None:
    sizes = (2, 3, 6, 9), (1, 3, 8, 5), (3, 3, 11, 4)
    images = [torch.randn(*size) * 3 for size in sizes]
    _check(function, images, {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}, device)


@pytest.mark.parametrize(
    ("mode", "axes", "how"),
    [
        ("bicubic", 2, {"size": (9, 3)}),
        ("bicubic", 2, {"scale_factor": 1.5}),
        ("linear", 1, {"scale_factor": 1.5}),
        ("bilinear", 2, {"scale_factor": 1.5}),
        ("trilinear", 3, {"scale_factor": 1.5}),
    ],
)
@pytest.mark.turns(3)
def test_images_of_one_row(mode: str, axes: int, how: dict[str, Any]) -> None:
    """PyTorch divides by the number of gaps between pixels."""

    def function(x: Any) -> Any:
        given = {"size": (x.shape[2] * 2 - 1, 3)} if "size" in how else how
        return functional.interpolate(x, mode=mode, align_corners=True, **given)

    images = [torch.randn(1, 2, rows, *(6,) * (axes - 1)) for rows in (5, 1, 7)]
    _check(function, images, {2: Dim.AUTO}, "llvm")


def _check(function: Any, inputs: list[Any], sizes: Any, device: str) -> None:
    """Compile for the first input, and run with each."""
    program = export(function, inputs[:1], [sizes])
    machine = compile_for(from_exported_program(program), device)
    for each in inputs:
        expected = tree_leaves(function(each))
        for at, results in enumerate(zip(run(machine, [each], device), expected, strict=True)):
            assert_same(*results, f"result {at} of {tuple(each.shape)}")
