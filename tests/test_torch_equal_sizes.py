"""Sizes that PyTorch knows to be equal, where TVM infers another formula for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

WEIGHTS = torch.randn(4, 1, 10), torch.randn(4, 2, 8)


def two_convolutions(x: Any) -> Any:
    """The positions of a model of speech: the result of the second one is trimmed."""
    sound = torch.conv1d(x[None, None], WEIGHTS[0], stride=5)
    return sound + torch.conv1d(sound, WEIGHTS[1], padding=4, groups=2)[:, :, :-1]


def differences(x: Any) -> Any:
    return torch.where(x[1:] > 0, x[:-1] * x[1:], x.narrow(0, 0, x.shape[0] - 1))


def halves(x: Any) -> Any:
    return x[: x.shape[0] // 2] + x[(x.shape[0] + 1) // 2 :]


@pytest.mark.parametrize("function", [two_convolutions, differences, halves])
def test_formulas_of_one_size(function: Callable[[Any], Any]) -> None:
    program = export(function, [torch.randn(60)], [{0: torch.export.Dim.AUTO}])
    machine = compile_for(from_exported_program(program))
    for size in (60, 97):
        x = torch.randn(size)
        assert_same(run(machine, [x])[0], function(x), f"size {size}")


ALIBI = torch.randn(4, 1, 64)


def last_of_a_table(x: Any) -> Any:
    """The biases by distance of a model of language: a size in its own formula, and one size 1."""
    rows, columns = x.shape[1:]
    return x + ALIBI[:, max(0, 1 - rows) :, max(0, 64 - columns) :]


def one_of_many(x: Any) -> Any:
    """An axis of size 1 that is broadcast, of either operand and of a choice."""
    row = x[:1, x.shape[1] - 1 :, : max(1, 2 - x.shape[2])]
    return torch.where(row > 0, row - x, x * row)


@pytest.mark.parametrize("function", [last_of_a_table, one_of_many])
def test_formulas_that_a_size_is_part_of(function: Callable[[Any], Any]) -> None:
    sizes = {1: torch.export.Dim("rows", max=60), 2: torch.export.Dim("columns", max=60)}
    program = export(function, [torch.randn(4, 9, 7)], [sizes])
    machine = compile_for(from_exported_program(program))
    for rows, columns in ((1, 1), (9, 7), (60, 59)):
        x = torch.randn(4, rows, columns)
        assert_same(run(machine, [x])[0], function(x), f"{rows} x {columns}")


def test_parts_that_are_joined_again(device: str) -> None:
    """A mixture of experts that loops over its experts, as JetMoE of transformers does."""

    def experts(x: Any, expert: Any) -> Any:
        counts = torch.zeros(3, dtype=torch.int64).index_add(0, expert, torch.ones_like(expert))
        order = expert.argsort(stable=True)
        parts = x[order].split(counts.tolist())
        done = torch.cat([part * (i + 1) for i, part in enumerate(parts)])
        return torch.zeros_like(x).index_add(0, order, done * x[order])

    inputs = torch.randn(8, 4), torch.tensor([2, 0, 2, 0, 0, 2, 2, 2])
    machine = compile_for(from_exported_program(export(experts, inputs)), device)
    for expert in (inputs[1], inputs[1].flip(0) // 2, torch.ones_like(inputs[1])):
        found = run(machine, [inputs[0], expert], device)
        assert_same(found[0], experts(inputs[0], expert))
