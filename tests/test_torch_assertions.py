"""``torch._check`` of numbers that a program computes from data, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.arange(12.0).reshape(4, 3)


def size(x: Any, n: Any) -> Any:
    count = n.max().item()
    torch._check(count >= 0)
    torch._check(count < 4)
    return x[:count]


def number(x: Any, n: Any) -> Any:
    torch._check(n[0].item() < n[1].item())
    torch._check(n.max().item() * 2 != 6)
    return x + 1


def bound(x: Any, n: Any) -> Any:
    torch._check(n.min().item() >= -x.shape[0])
    return n


def flag(x: Any, n: Any) -> Any:
    torch._check((n < 5).all().item())
    return x.clone()


def mean(x: Any, n: Any) -> Any:
    middle = n.float().mean().item()
    torch._check(middle < 2.5)
    return x * middle


def tensor(x: Any, n: Any) -> Any:
    torch._assert_async((n < 5).all(), "a number is 5 or more")
    return x + n[0]


def parts(x: Any, n: Any) -> Any:
    """PyTorch asserts by itself that no size is negative, and what their sum is."""
    first, second = torch.split(x, n.tolist(), 0)
    return torch.cat([second, first])


FUNCTIONS: tuple[Callable[..., Any], ...] = (size, number, bound, flag, mean, tensor, parts)
NUMBERS = ([0, 2], [2, 1], [1, 3], [1, 5], [-1, 2], [-5, 1], [2, 4], [5, -1], [-1, 5])


def compiled(function: Callable[..., Any], bounds: str, device: str) -> Any:
    module = from_exported_program(export(function, [X, torch.tensor([1, 3])]))
    with tvm_scatter.options(bounds=bounds):
        return compile_for(module, device)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.turns(2)
def test_what_is_asserted(function: Callable[..., Any]) -> None:
    machine, refused = compiled(function, "raise", "llvm"), 0
    for numbers in NUMBERS:
        n = torch.tensor(numbers)
        try:
            right = function(X, n)
        except RuntimeError:
            refused += 1
            with pytest.raises(RuntimeError, match=r"assertion failed|5 or more"):
                run(machine, [X, n])
        else:
            [found] = run(machine, [X, n])
            assert_same(found, right)
    assert refused


def every(x: Any, n: Any, m: Any) -> Any:
    return size(x, n), flag(x, m)


@pytest.mark.parametrize("bounds", ["raise", "drop"])
def test_on_a_gpu(bounds: str) -> None:
    """Numbers that the host reads are always checked, others under ``raise``."""
    good, large = torch.tensor([0, 2]), torch.tensor([0, 9])
    module = from_exported_program(export(every, [X, good, good.clone()]))
    with tvm_scatter.options(bounds=bounds):
        machine = compile_for(module, "cuda")
    with pytest.raises(RuntimeError, match="u0 <= 3"):
        run(machine, [X, large, good], "cuda")
    if bounds == "raise":
        with pytest.raises(RuntimeError, match="Eq"):
            run(machine, [X, good, large], "cuda")
    for m in (good, large)[: 1 + (bounds == "drop")]:
        for found, right in zip(run(machine, [X, good, m], "cuda"), (X[:2], X), strict=True):
            assert_same(found, right)


def test_a_number_that_is_not_checked_is_not_computed() -> None:
    module = from_exported_program(export(flag, [X, torch.tensor([0, 2])]))
    with tvm_scatter.options(bounds="drop"):
        text = tvm_scatter.passes.UncheckedNumbers()(module).script()
    assert "R.less" in module.script() and "R.less" not in text


def test_what_follows_from_another_assertion_is_not_checked() -> None:
    """PyTorch exports six assertions of one flag."""
    module = from_exported_program(export(flag, [X, torch.tensor([0, 2])]))
    assert module.script().count("expect_numbers") == 1
