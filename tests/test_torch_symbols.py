"""Arithmetic on symbolic sizes in imported models, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def shapes(x: Any) -> list[Any]:
    n = x.shape[0]
    return [
        *(x.new_zeros(torch.sym_max(n, 7)), x.new_zeros(torch.sym_min(n, 7))),
        *(
            x.new_zeros(n * 2 + 1),
            x.new_zeros(n // 2 + 1),
            x.new_zeros(n**2 - n),
            x.new_zeros(n - 1),
        ),
        *(x.new_zeros(n % 3 + 2), x.new_zeros(torch.sym_max(n // 3, n % 3) + 1)),
        x.new_zeros(torch.sym_sum([n, n, 3])),
    ]


def values(x: Any) -> list[Any]:
    n = x.shape[0]
    halves = torch.sym_ite(torch.sym_not(n > 3), 1.0, 2.5)
    return [
        *(x / torch.sym_float(n), x * (n**0.5), x * (n / 3), x * (n // 2), x + n % 3, x - n),
        *(x * halves, torch.full((3,), n) + x.long()[0], x.long() * n, x.long() / n, n / x),
        *(
            x * (1 / n),
            x**n,
            x * torch.sym_sqrt(n),
            (x > n / 2),
            x.clamp(max=n),
            x * (2 * n - n / 4),
        ),
    ]


def written(x: Any) -> list[Any]:
    n, rows = x.shape[0], torch.tensor([0, 2])
    several, masked = x.clone(), x.clone()
    several[1:], masked[x > 1] = n, n
    return [
        *(x.masked_fill(x > 1, n), x.long().masked_fill(x > 1, n - 1), x.index_fill(0, rows, n)),
        *(x.scatter(0, rows, n), torch.where(x > 1, n, x), torch.where(x > 1, n, 0)),
        *(several, masked, torch.tensor([0, n]), torch.maximum(x, torch.tensor(n))),
    ]


@pytest.mark.parametrize("function", [shapes, values, written])
def test_sizes_as_numbers(function: Any, device: str) -> None:
    if device == "cuda" and function is values:
        chosen = lambda x: [x / torch.sym_float(x.shape[0]), x * x.shape[0]]  # noqa: E731
    else:
        chosen = function
    number = torch.export.Dim("number", min=3, max=1000)
    program = export(chosen, [torch.rand(5)], dynamic=({0: number},))
    machine = compile_for(from_exported_program(program), device)
    for size in (5, 3, 8):
        x = torch.rand(size) + 0.5
        for i, (found, wanted) in enumerate(zip(run(machine, [x], device), chosen(x), strict=True)):
            assert_same(found, wanted, f"result {i} of size {size}")


def first(x: Any, k: Any) -> Any:
    count = k.item()
    torch._check(count >= 0)
    torch._check(count <= x.shape[0])
    return x[:count] * count, x[count:], x.new_zeros(count + 1), x * torch.sym_max(count, 2)


def test_a_size_that_is_an_input(device: str) -> None:
    x = torch.randn(5)
    program = export(first, [x, torch.tensor(3)])
    machine = compile_for(from_exported_program(program), device)
    for count in (3, 5, 1):
        k = torch.tensor(count)
        for found, wanted in zip(run(machine, [x, k], device), first(x, k), strict=True):
            assert_same(found, wanted)
