"""Choices that are factors, beside a read: TVM's analysis of ranges failed for such kernels."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch_harness import check


def gated(choose, read):
    """Each has the choice three times, so that it gets a name, and reads a row of another place."""

    def model(x, scale, index):
        gate = choose(x, scale)
        return x * gate + read(x, index) * gate - 0.5 * gate

    return model


CHOICES = {
    "clamp": lambda x, scale: torch.clamp(x, -1, 1) * x,
    "one number": lambda x, scale: torch.clamp(scale, -1, 1) * x,
    "relu6": lambda x, scale: functional.relu6(scale) * x,
    "quotient": lambda x, scale: torch.clamp(x, -1, 1) / (x * x + 1),
}
READS = {"index": lambda x, index: x[index], "roll": lambda x, index: torch.roll(x, 1, 0)}


@pytest.mark.turns(6)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_they_compile(choose, read, dtype, device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 8, (7, 5), generator=generator).to(dtype) / 4
    scale, index = torch.tensor(0.5, dtype=dtype), torch.randint(0, 7, (7,), generator=generator)
    check(gated(choose, read), x, scale, index, device=device)
