"""Sizes that a PyTorch model was not exported for: an error, and not another program's result."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def summed(x: Any, index: Any) -> Any:
    return torch.zeros(3, x.shape[1]).index_add(0, index, x)


def doubled_if_long(x: Any, index: Any) -> Any:
    sums = summed(x, index)
    return sums * 2 if x.shape[0] > 4 else sums


def of_rows(rows: int) -> tuple[Any, Any]:
    return torch.ones(rows, 2), torch.arange(rows) % 3


def compiled(function: Any, rows: Any, device: str) -> relax.VirtualMachine:
    exported = export(function, of_rows(7), ({0: rows}, {0: rows}))
    return compile_for(from_exported_program(exported), device)


@pytest.mark.parametrize(
    ("function", "rows", "at_least", "at_most"),
    [
        (summed, Dim("rows", max=9), 0, 9),
        (summed, Dim("rows", min=3, max=9), 3, 9),
        (doubled_if_long, Dim.AUTO, 5, None),
        (doubled_if_long, Dim("rows", min=5, max=9), 5, 9),
    ],
    ids=["at most", "from to", "a branch", "a branch of a bounded size"],
)
def test_sizes_beyond(
    function: Any, rows: Any, at_least: int, at_most: int | None, device: str
) -> None:
    built = compiled(function, rows, device)
    for size in (at_least, 8, at_most or 70):
        inputs = of_rows(size)
        assert_same(*run(built, inputs, device), function(*inputs))
    for size in range(at_least):
        said = rf"main: dimension 0 of inputs_0 must be at least {at_least}, but is {size}\.$"
        with pytest.raises(ValueError, match=said):
            run(built, of_rows(size), device)
    for size in () if at_most is None else (10, 4000, 400_000):
        said = rf"main: dimension 0 of inputs_0 must be at most 9, but is {size}\.$"
        with pytest.raises(ValueError, match=said):
            run(built, of_rows(size), device)


def test_sizes_of_any_number(device: str) -> None:
    """PyTorch notes two as the least of each size, also where no program needs it."""
    built = compiled(summed, Dim.AUTO, device)
    for size in (0, 1, 2, 40):
        inputs = of_rows(size)
        assert_same(*run(built, inputs, device), summed(*inputs))
