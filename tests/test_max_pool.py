"""Max pooling that also tells where the maxima are, against PyTorch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf, nan
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, check, export, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

LEAST = -(2**63)


def pool(x: Any, *window: Any, **options: Any) -> Any:
    """The maxima and their positions, of as many axes as the tensor has beside channels."""
    axes = x.ndim - 1 if x.ndim < 4 else x.ndim - 2
    return getattr(functional, f"max_pool{axes}d")(x, *window, return_indices=True, **options)


#: A plane, the window, the maxima and their positions.
CASES: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
    "the first of equal ones": ([[2, 2], [2, 1]], {"kernel_size": 2}, [[2]], [[0]]),
    "zeros of both signs are equal": ([[-0.0, 0.0]], {"kernel_size": (1, 2)}, [[0]], [[0]]),
    "the last that is no number": (
        [[nan, 1], [nan, 9]],
        {"kernel_size": 2},
        [[nan]],
        [[2]],
    ),
    "what is no number beside padding": (
        [[nan, 1, nan]],
        {"kernel_size": (1, 3), "stride": 1, "padding": (0, 1)},
        [[nan, nan, nan]],
        [[0, 2, 2]],
    ),
    "padding is never taken": (
        [[-inf, -inf], [-inf, -3]],
        {"kernel_size": 2, "padding": 1},
        [[-inf, -inf], [-inf, -3]],
        [[0, 1], [2, 3]],
    ),
    "least integers": (
        [[LEAST, LEAST]],
        {"kernel_size": (1, 2), "stride": 1, "padding": (0, 1)},
        [[LEAST, LEAST, LEAST]],
        [[0, 0, 1]],
    ),
    "steps between elements": (
        [[1, 9, 2], [9, 9, 9], [3, 9, 4]],
        {"kernel_size": 2, "dilation": 2},
        [[4]],
        [[8]],
    ),
    "steps over the only element": (
        [[7.0]],
        {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 2},
        [[-inf]],
        [[2]],
    ),
    "a last window partly outside": (
        [[1, 2, 3]],
        {"kernel_size": (1, 2), "ceil_mode": True},
        [[2, 3]],
        [[1, 2]],
    ),
}


@pytest.mark.each_device
def test_literal_cases(device: str) -> None:
    planes = [torch.tensor(plane)[None, None] for plane, *_ in CASES.values()]

    def every(*planes: Any) -> Sequence[Any]:
        given = zip(planes, CASES.values(), strict=True)
        return [each for x, (_, window, *_) in given for each in pool(x, **window)]

    expected = [by_eye for _, _, *both in CASES.values() for by_eye in both]
    found = through_tvm(every, planes, device=device)
    for each, in_torch, by_eye in zip(found, every(*planes), expected, strict=True):
        assert_same(in_torch, torch.tensor(by_eye, dtype=in_torch.dtype)[None, None])
        assert_same(each, in_torch)


#: Windows of planes: short ones and long ones, that overlap or leave elements out.
WINDOWS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((2,), {}),
    ((3, 2, 1), {}),
    ((2, 2, 1), {}),
    (((3, 2), (2, 1), (1, 0)), {"ceil_mode": True}),
    ((2, 1), {"dilation": 2}),
    (((3, 2), 2, 1, (2, 3)), {}),
    ((2, 3), {"ceil_mode": True}),
    (((7, 10), 2, (3, 5)), {}),
    ((1, 2), {}),
)
SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1.0, 2.0)


def some(*shape: int) -> Any:
    """Numbers of which many are equal, and some are none."""
    given = torch.Generator().manual_seed(sum(shape))
    return torch.tensor(SPECIAL)[torch.randint(0, len(SPECIAL), shape, generator=given)]


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.turns(2)
def test_windows(unknown: bool, device: str) -> None:
    def every(x: Any) -> Sequence[Any]:
        return [each for window, options in WINDOWS for each in pool(x, *window, **options)]

    dynamic = [{0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}] if unknown else None
    check(every, some(2, 3, 13, 12), dynamic=dynamic, device=device)


@pytest.mark.turns(2)
def test_types_and_axes(device: str) -> None:
    integers = (torch.uint8, torch.int8, torch.int32, torch.int64)

    def every(x: Any, i: Any) -> Sequence[Any]:
        pooled = [pool(x.to(each), 3, 2, 1) for each in (torch.half, torch.bfloat16, torch.double)]
        pooled += [pool(i.to(each), 2, 1, 1) for each in integers]
        pooled += [pool(x[0], 2, ceil_mode=True), pool(x[0, 0], 3, 2, 1), pool(x[0, :2], 2)]
        pooled += [pool(x[None], (2, 3, 1), 1, (1, 1, 0)), pool(x[:0], 2)]
        pooled += [functional.max_pool3d(x, 2, 1, return_indices=True)]
        return [each for both in pooled for each in both]

    check(every, some(2, 4, 7, 6), torch.arange(-40, 40).reshape(2, 2, 4, 5) % 7, device=device)


def test_what_is_computed_before_and_after(device: str) -> None:
    def every(x: Any) -> Sequence[Any]:
        values, at = pool((x * 2).relu(), 2)
        return values + 1, at.reshape(2, -1) + 1, values.reshape(-1), pool(x, 3)[1]

    check(every, some(2, 3, 6, 8), device=device)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
def test_no_windows_are_written(unknown: bool) -> None:
    """A kernel pools, and one puts the maxima back. A reshape of the positions is none."""

    def back(x: Any) -> Any:
        return functional.max_unpool2d(*pool(x, 2), 2)

    dynamic = [{0: Dim.AUTO}] if unknown else None
    program = export(back, [torch.ones(4, 3, 32, 16)], dynamic)
    source = cuda(from_exported_program(program))
    pooling = [name for name in kernels(source) if not name.startswith("scatter")]
    assert len(pooling) == 1, kernels(source)


def kernels(source: str) -> set[str]:
    """The names of all kernels."""
    return set(re.findall(r"__global__ void __launch_bounds__\(\d+\) (\w+)\(", source))


def test_last_windows_of_an_unknown_size() -> None:
    """With steps longer than the window, the last one may begin behind the data."""
    x = some(2, 3, 13, 11)

    def pools(x: Any) -> Any:
        plain = functional.max_pool2d(x, 2, 3, ceil_mode=True)
        return plain, *pool(x[..., 0], 2, 7, 1, ceil_mode=True), *pool(x, 2, 3, 1, ceil_mode=True)

    check(pools, x, dynamic=[{2: Dim.AUTO}], device="cuda")
