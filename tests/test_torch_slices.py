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


@pytest.mark.turns(3)
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


def test_slices_without_elements(device):
    def function(x):
        parts = [x[2:-2], x[2:1], x[3:], x[:, 5:3:2], x.narrow(1, 2, 0), *x.split([2, 0, 1])]
        parts += x[:, :0].chunk(2, 1)
        return (*parts, x[2:-2] * 2 + x[1:1], torch.cat([x[2:-2], x]), x[:, :0].sum(1))

    torch_harness.check(function, torch.randn(3, 4), device=device)


def test_diagonals_without_elements(device):
    def function(x):
        y, z = x[:, 1:], x[:0]
        diagonals = [y.diagonal(0, 0, 2), y.diagonal(1, 2, 1), z.diagonal(0, 1, 2), z.diagonal()]
        return (*diagonals, x.diagonal(3), x[..., 0].diagonal(-2), y.diagonal(0, 0, 2) + 1)

    torch_harness.check(function, torch.randn(2, 1, 2), device=device)


@pytest.mark.each_device
def test_strides_of_a_tensor_that_nothing_is_written_to(device):
    def function(x):
        reads = [
            ((2, 2), (2, 1), 1),
            ((3, 4), (4, 1)),
            ((2, 6), (6, 1)),
            ((3,), (5,)),
            ((0, 2), (2, 1)),
        ]
        y = x * 2
        return [x.as_strided(*read) for read in reads] + [y.as_strided((2, 3), (1, 2), 3)]

    torch_harness.check(function, torch.randn(3, 4), device=device)


def test_slices_from_a_place_in_a_tensor():
    """PyTorch asserts that they begin at no negative place of the memory."""

    def function(x, place):
        return x[place : place + 2] * 2, x[place:].sum(0)

    program = torch_harness.export(function, [torch.randn(8, 3), torch.tensor(4)], [{0: ROWS}, {}])
    machine = torch_harness.compile_for(from_exported_program(program))
    for place in (4, 0, 7, 8):
        given = torch.randn(8, 3), torch.tensor(place)
        for found, right in zip(torch_harness.run(machine, given), function(*given), strict=True):
            torch_harness.assert_same(found, right)
