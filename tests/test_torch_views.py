"""Views and repetitions of symbolic sizes, against PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch_harness
from torch.export import Dim
from tvm.relax.frontend.torch import from_exported_program

ROWS = Dim("rows", min=2, max=90)


def repeated_by_rows(x):
    return torch.arange(3.0).repeat(x.shape[0], 2) + x[:, :1]


def repeated_rows(x):
    return x[None].repeat(2, x.shape[0], 1)


def viewed_by_heads(x):
    """The first size differs from the old one, which is symbolic."""
    return (x * 2).view(x.shape[0] * 2, 3).view(-1, x.shape[0], 3) + 1


def squeezed(x):
    """Axes whose size varies stay."""
    return torch.cat([x[:, None].squeeze(0), x[:, None].squeeze((0, 1))[:, None]]).squeeze()


@pytest.mark.turns(2)
@pytest.mark.parametrize("function", [repeated_by_rows, repeated_rows, viewed_by_heads, squeezed])
def test_agrees_with_pytorch(function, device):
    program = torch_harness.export(function, [torch.randn(5, 6)], [{0: ROWS}])
    machine = torch_harness.compile_for(from_exported_program(program), device)
    for rows in (2, 5, 7):
        given = torch.randn(rows, 6)
        [found] = torch_harness.run(machine, [given], device)
        torch_harness.assert_same(found, function(given))
