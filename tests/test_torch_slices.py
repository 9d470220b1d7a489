"""Slices of tensors whose sizes are symbolic: PyTorch knows their sizes."""

from __future__ import annotations

import pytest
import torch
import torch_harness
from torch.export import Dim
from tvm.relax.frontend.torch import from_exported_program

ROWS, MORE = Dim("rows", min=2, max=90), Dim("more", min=2, max=90)


def steps_of_joined(x, y):
    joined = torch.cat([x, y])
    return joined[1:] - joined[:-1]


def pairs_of_joined(x, y):
    joined = torch.cat([x, y])
    return joined[:-2] * joined[2:] + joined[1:-1]


def last_of_joined(x, y):
    return torch.cat([x, y])[-3:] + 1


@pytest.mark.parametrize("function", [steps_of_joined, pairs_of_joined, last_of_joined])
def test_slices_of_symbolic_sizes(function, device):
    example = [torch.randn(7), torch.randn(6)]
    program = torch_harness.export(function, example, [{0: ROWS}, {0: MORE}])
    machine = torch_harness.compile_for(from_exported_program(program), device)
    for sizes in ((5, 4), (2, 2), (9, 3)):
        given = [torch.randn(size) for size in sizes]
        [found] = torch_harness.run(machine, given, device)
        torch_harness.assert_same(found, function(*given))


def test_the_last_rows(device):
    program = torch_harness.export(lambda x: x[-2:] * 2, [torch.randn(7)], [{0: ROWS}])
    machine = torch_harness.compile_for(from_exported_program(program), device)
    for size in (2, 3, 8):
        given = torch.randn(size)
        [found] = torch_harness.run(machine, [given], device)
        torch_harness.assert_same(found, given[-2:] * 2)
