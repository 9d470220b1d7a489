"""Bits of tensors viewed as another type, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_harness
from torch.export import Dim
from torch_harness import Case, check_all

PAIRS = {
    "float32 as int32": (torch.float32, torch.int32),
    "int16 as bfloat16": (torch.int16, torch.bfloat16),
    "float16 as bfloat16": (torch.float16, torch.bfloat16),
    "float64 as int64": (torch.float64, torch.int64),
    "uint8 as int8": (torch.uint8, torch.int8),
    "narrower: float32 as int16": (torch.float32, torch.int16),
    "narrower: int64 as int8": (torch.int64, torch.int8),
    "wider: int16 as float32": (torch.int16, torch.float32),
    "wider: uint8 as int64": (torch.uint8, torch.int64),
}


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """In rows of 8; none of them, taken for a float, is NaN."""
    return torch.linspace(0, 100, 24).reshape(3, 8).to(dtype)


def test_views_of_bits(device: str) -> None:
    cases: list[Case] = [
        (name, lambda x, after=after: x.view(after), (numbers(before),))
        for name, (before, after) in PAIRS.items()
    ]
    check_all(cases, device=device)


def test_the_first_of_narrow_elements_has_the_lowest_bits() -> None:
    given = torch.tensor([[0x04030201, -1]], dtype=torch.int32)
    [found] = torch_harness.through_tvm(lambda x: x.view(torch.uint8), [given])
    assert found.tolist() == [[1, 2, 3, 4, 255, 255, 255, 255]]
    [found] = torch_harness.through_tvm(lambda x: x.view(torch.int32), [found])
    assert found.tolist() == given.tolist()


@pytest.mark.parametrize("after", [torch.int16, torch.int64])
def test_the_last_axis_may_be_symbolic(after: torch.dtype) -> None:
    given = numbers(torch.int32)
    torch_harness.check(
        lambda x: x.view(after), given, dynamic=({1: 2 * Dim("half", min=1, max=9)},)
    )


def test_written_through_a_view() -> None:
    def without_sign(x: Any) -> Any:
        copy = x.clone()
        copy.view(torch.int32).bitwise_and_(0x7FFFFFFF)
        return copy

    torch_harness.check(without_sign, torch.randn(3, 5))


def test_flags_have_no_bits() -> None:
    with pytest.raises(ValueError, match="a view of uint8 as bool is not supported"):
        torch_harness.through_tvm(lambda x: x.view(torch.bool), [numbers(torch.uint8)])
