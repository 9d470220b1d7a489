"""Sizes that PyTorch knows to be equal, where TVM infers another formula for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

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


def even_and_odd(x: Any) -> tuple[Any, Any]:
    """Of ``2 n`` columns: PyTorch knows ``n`` of each, TVM has two formulas."""
    return x[:, ::2], x[:, 1::2]


def side_by_side(x: Any) -> Any:
    first, second = even_and_odd(x)
    return torch.cat([first, second]), torch.hstack([first.T, second.T]), torch.cat([x[:0], x], -2)


def interleaved(x: Any) -> Any:
    first, second = even_and_odd(x)
    return torch.stack([-second, first], -1).flatten(-2), torch.stack([first, second]).flatten()


def multiplied(x: Any) -> Any:
    first, second = even_and_odd(x)
    batches = torch.bmm(first[None].transpose(1, 2) + 0, second[None])
    return first @ second.T, batches, torch.addmm(first, torch.ones(4, 4), second)


def distances(x: Any) -> Any:
    first, second = even_and_odd(x)
    return torch.cdist(first, second), torch.dot(first[0], second[0]), torch.mv(first, second[1])


@pytest.mark.parametrize("function", [side_by_side, interleaved, multiplied, distances])
def test_operands_that_agree_along_some_axes(function: Callable[[Any], Any], device: str) -> None:
    program = export(function, [torch.randn(4, 12)], [{1: torch.export.Dim.AUTO}])
    machine = compile_for(from_exported_program(program), device)
    for size in (12, 6, 18):
        x = torch.randn(4, size)
        for result, right in zip(run(machine, [x], device), function(x), strict=True):
            assert_same(result, right.contiguous(), f"size {size}")


IMAGES = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ConvTranspose2d(4, 4, 2, 2)


def skipped(x: Any) -> Any:
    """What a U-Net does at each of its levels."""
    image = IMAGES[0](x).relu()
    low = torch.nn.functional.max_pool2d(image, 2)
    near = torch.nn.functional.interpolate(low, scale_factor=2)
    return torch.cat([IMAGES[1](low), near, image], 1)


def focused(x: Any) -> Any:
    """What the first layer of a YOLO does."""
    parts = [x[..., i::2, j::2] for j in range(2) for i in range(2)]
    return torch.cat(parts, 1)


@pytest.mark.parametrize("function", [skipped, focused])
def test_images_of_even_sizes(function: Callable[[Any], Any]) -> None:
    auto = torch.export.Dim.AUTO
    with torch.no_grad():
        program = export(function, [torch.randn(2, 3, 8, 12)], [{2: auto, 3: auto}])
        machine = compile_for(from_exported_program(program))
        for height, width in ((8, 12), (4, 16), (6, 6)):
            x = torch.randn(2, 3, height, width)
            assert_same(run(machine, [x])[0], function(x), f"{height} x {width}")
    with pytest.raises(ValueError):
        run(machine, [torch.randn(2, 3, 7, 6)])


def pairs(x: Any) -> Any:
    """The size of the last axis is ``n // (n // 2)`` for PyTorch, which proves that it is 2."""
    line = x[:1] * 2
    first, second = line.view(1, x.shape[1] // 2, 2).unbind(2)
    rest = line.view(1, x.shape[1] // 2, 2)[..., 1:].squeeze(-1)
    kept = x[:1, None].squeeze(1), x.unsqueeze(0).squeeze()
    return (first, first + 2 * second, rest, *kept)


def channels(x: Any) -> Any:
    """Space to channels, whose number is computed, and halves of these."""
    turned = x.view(4, 3, x.shape[1] // 6, 2).permute(0, 1, 3, 2)
    first, second = turned.reshape(4, 6, x.shape[1] // 6).chunk(2, 1)
    return (first + second * 2,)


@pytest.mark.parametrize("function", [pairs, channels])
def test_sizes_that_pytorch_computes(function: Callable[[Any], Any]) -> None:
    program = export(function, [torch.randn(4, 12)], [{1: torch.export.Dim.AUTO}])
    machine = compile_for(from_exported_program(program))
    for size in (12, 18, 24):
        x = torch.randn(4, size)
        for result, right in zip(run(machine, [x]), function(x), strict=True):
            assert result.shape == right.shape
            assert_same(result, right.contiguous(), f"size {size}")


def test_constants_without_values() -> None:
    weights = torch.randn(3, 4)

    def gradient(x: Any) -> Any:
        return torch.func.grad(lambda each: (each @ weights).tanh().sum())(x)

    program = export(gradient, [torch.randn(5, 3)])
    with pytest.raises(tvm_scatter.ScatterError, match=r"lifted_tensor_0.*trace the function with"):
        from_exported_program(program)
