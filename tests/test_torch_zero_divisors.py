"""Integers divided by a size or a number that may be zero: never the end of the process.

PyTorch raises an error there on a CPU, and gives any number on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def by_sizes(i: Any, y: Any) -> tuple[Any, ...]:
    rows = y.shape[0]
    return (
        i % rows,
        i // rows,
        torch.fmod(i, rows),
        torch.div(i, rows, rounding_mode="trunc"),
        torch.arange(5) % rows,
        i + i.shape[0] // rows,
        i * (i.shape[0] % rows),
        torch.full((3,), i.shape[0] // rows),
        y.sum(0) * (i.shape[0] // rows),
        torch.tensor(7) // torch.tensor(rows),
    )


def by_numbers(i: Any, y: Any) -> tuple[Any, ...]:
    return i % i.max(), i // i.max(), i // i.max().item(), i * (i.sum().item() % i.max().item())


def by_minus_one(i: Any, y: Any) -> tuple[Any, ...]:
    least = torch.full((2,), -(2**63))
    return i // -1, least // -1, i % -1, least % -1, i // (y.shape[0] - 3)


@pytest.mark.parametrize("function", [by_sizes, by_numbers, by_minus_one])
def test_division(function: Any, device: str) -> None:
    given = torch.tensor([0, 1, 7, -5]), torch.ones(2, 2)
    built = compile_for(
        from_exported_program(export(function, given, (None, {0: Dim.DYNAMIC}))), device
    )
    for rows in (2, 1, 0):
        for values in ([0, 1, 7, -5], [0, 0, 0, 0], [-1, -3, -2, 0]):
            inputs = torch.tensor(values), torch.ones(rows, 2)
            results = run(built, inputs, device)
            try:
                expected = function(*inputs)
            except (RuntimeError, ZeroDivisionError):
                continue
            for result, right in zip(results, expected, strict=True):
                assert_same(result, right, f"{values} {rows}")


@pytest.mark.parametrize("divisor", [0, torch.tensor(0)], ids=["a number", "a tensor"])
def test_nothing_is_divided_by_zero(divisor: Any) -> None:
    """PyTorch divides no elements by anything."""

    def divided(x: Any) -> tuple[Any, ...]:
        return x % divisor, x // divisor, torch.take_along_dim(x, x, -1), x.reshape(2, -1)

    x = torch.zeros(2, 0, dtype=torch.int64)
    for result, right in zip(
        run(compile_for(from_exported_program(export(divided, [x]))), [x]), divided(x), strict=True
    ):
        assert_same(result, right)


def test_a_reshape_of_nothing_to_what_is_left() -> None:
    def reshaped(x: Any, index: Any) -> tuple[Any, ...]:
        rows = x.reshape(x.shape[0], -1)
        return rows, torch.nn.functional.embedding(index, rows).reshape(index.shape[0], 4, 0)

    given = torch.zeros(3, 4, 0), torch.tensor([0, 2])
    exported = export(reshaped, given, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    built = compile_for(from_exported_program(exported))
    for rows in (3, 5, 1):
        inputs = torch.zeros(rows, 4, 0), torch.zeros(rows + 1, dtype=torch.int64)
        for result, right in zip(run(built, inputs), reshaped(*inputs), strict=True):
            assert_same(result, right)


FLOATS = (
    lambda x: x / 0,
    lambda x: x / -0.0,
    lambda x: x.double() / 0.0,
    lambda x: torch.div(x, 0.0, rounding_mode="trunc"),
    lambda x: x.half() / 0,
    lambda x: torch.full((2,), 1e308, dtype=torch.float64),
    lambda x: torch.full_like(x.double(), -1.7e308),
)


def test_floats() -> None:
    """TVM refuses a divisor that is the constant zero, and to fill with great numbers."""

    def function(x: Any) -> tuple[Any, ...]:
        return tuple(each(x) for each in FLOATS)

    x = torch.tensor([1.0, -2.0, 0.0, -0.0, float("nan"), float("inf")])
    built = compile_for(from_exported_program(export(function, [x])))
    for result, right in zip(run(built, [x]), function(x), strict=True):
        assert result.dtype == right.dtype
        assert torch.equal(result.nan_to_num(7.0), right.nan_to_num(7.0))
