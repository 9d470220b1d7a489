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
@pytest.mark.turns(3)
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


def flagged(x: Any, k: Any) -> Any:
    flag = (k > 2).item()
    size = torch.sym_ite(flag, 4, 2)
    torch._check(size >= 2)
    return x * size, x.new_zeros(size), x * torch.sym_ite(torch.sym_not(flag), 0.5, 1.5)


def asserted(x: Any, k: Any) -> Any:
    """transformers' RT-DETR v2 checks sums of sizes so."""
    torch._check((k > 0).all().item())
    torch._check((k.max() < 9).item())
    return x * 2


def scaled(x: Any, k: Any) -> Any:
    factor = (k * 0.5).item()
    return [
        *(x * (factor * 2), x * (factor // 2), x * (factor % 2), x * (2 / factor), x**factor),
        *(x * torch.sym_max(factor, 1.0), x * torch.sym_sqrt(factor), x * (factor**2 - 1)),
        *(x * torch.sym_float(factor), torch.full((2,), factor), x.clamp(max=factor)),
    ]


@pytest.mark.turns(4)
@pytest.mark.parametrize("function", [flagged, asserted, scaled])
@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_numbers_that_a_program_computes(function: Any, shape: Any, device: str) -> None:
    if function is not flagged and torch.torch_version.TorchVersion(torch.__version__) < (2, 13):
        pytest.skip("torch.export refuses it")
    x = torch.rand(5) + 0.5
    program = export(function, [x, torch.full(shape, 3)])
    machine = compile_for(from_exported_program(program), device)
    for value in (3, 2):
        k = torch.full(shape, value)
        wanted = torch.utils._pytree.tree_leaves(function(x, k))
        for found, right in zip(run(machine, [x, k], device), wanted, strict=True):
            assert_same(found, right)


def test_a_number_that_is_only_asserted_is_not_read() -> None:
    program = export(asserted, [torch.rand(5), torch.tensor(3)])
    assert "tensor_to_shape" not in from_exported_program(program).script()
