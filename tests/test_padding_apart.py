"""Convolutions on a CPU read what was padded before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm
from torch.nn import functional
from torch_harness import assert_same, export, run
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.passes.padding_apart import PaddingApart

Tensor = torch.Tensor
LLVM = tvm.target.Target("llvm")


def compiled(program: Any) -> relax.VirtualMachine:
    module = from_exported_program(program)
    executable = tvm.compile(module, LLVM, relax_pipeline=tvm_scatter.pipeline(LLVM))
    return relax.VirtualMachine(executable, tvm.cpu())


def windows(x: Tensor, weight: Tensor, line: Tensor, taps: Tensor, cube: Tensor) -> list[Tensor]:
    convolved = functional.conv2d
    return [
        convolved(x, weight, padding=1),
        torch.relu(convolved(x, weight, padding=(2, 0), stride=(1, 2))) + 1,
        convolved(x, weight[:, :2], padding=2, dilation=2, groups=2),
        functional.conv1d(line, taps, padding=3),
        functional.conv1d(line, taps, padding="same"),
        functional.conv3d(cube, weight[:2, :2, None].tile(1, 1, 3, 1, 1), padding=(1, 0, 2)),
    ]


def inputs(height: int = 6, batch: int = 2) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, 4, height, 5), (4, 4, 3, 3), (2, 3, 7), (5, 3, 4), (1, 2, 4, 5, 3))
    return tuple(torch.randint(-4, 5, each, generator=generator).float() for each in shapes)


def test_results() -> None:
    machine = compiled(export(windows, inputs()))
    for result, expected in zip(run(machine, inputs()), windows(*inputs()), strict=True):
        assert_same(result, expected)


def test_unknown_sizes() -> None:
    auto = torch.export.Dim.AUTO
    program = export(windows, inputs(), ({0: auto, 2: auto}, None, None, None, None))
    machine = compiled(program)
    for height, batch in ((6, 2), (9, 1), (3, 5)):
        given = inputs(height, batch)
        for result, expected in zip(run(machine, given), windows(*given), strict=True):
            assert_same(result, expected)


@pytest.mark.parametrize("padding, operators", [(1, 2), (0, 1)])
def test_what_pads_is_apart(padding: int, operators: int) -> None:
    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, padding=padding)

    module = PaddingApart()(from_exported_program(export(convolved, inputs()[:2])))
    bindings = module["main"].body.blocks[0].bindings
    names = [each.value.op.name for each in bindings if isinstance(each.value, relax.Call)]
    assert names[-operators:] == ["relax.nn.pad", "relax.nn.conv2d"][-operators:]
    assert len(names) == operators
