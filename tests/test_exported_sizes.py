"""Sizes that a PyTorch model was not exported for: an error, and not another program's result."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
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


def split(x: Any) -> Any:
    return torch.tensor_split(x[:, 0], 2)


def rows_of_six(x: Any) -> Any:
    return x.reshape(-1, 6)


def largest_of_halves(x: Any) -> Any:
    return torch.nn.functional.max_pool2d(x[None, None], (x.shape[0] // 2, 1))


def first_half(x: Any) -> Any:
    return x[: int(x.shape[0] * 0.5)]


def middle(x: Any) -> Any:
    # ``int`` makes a number of a size, which then is no size any more.
    top = int(round((x.shape[0] - 4) / 2))  # noqa: RUF046
    return x[top : top + 4]


def by_root(x: Any) -> Any:
    return x + 1 if x.shape[0] ** 0.5 < 2.5 else x - 1


def by_power(x: Any) -> Any:
    return x + 1 if 2 ** x.shape[0] < 100 else x - 1


def even(x: Any) -> Any:
    return x + 1 if x.shape[0] & 1 == 0 else x - 1


def more_rows(x: Any) -> Any:
    return x + 1 if 2 * x.shape[1] < x.shape[0] else x - 1


@pytest.mark.parametrize(
    ("function", "wrong", "said"),
    [
        (split, (7, 2), "x.shape[0] % 2 <= 0, but x.shape[0] is 7"),
        (rows_of_six, (10, 2), "% 6 == 0, but x.shape[0] is 10 and x.shape[1] is 2"),
        (largest_of_halves, (12, 2), "x.shape[0] // 2 == 3, but x.shape[0] is 12"),
        (first_half, (12, 2), "(0.5 * torch.sym_float(x.shape[0])) == 3, but x.shape[0] is 12"),
        (middle, (9, 2), "round((-4 + x.shape[0]) / 2) == 1, but x.shape[0] is 9"),
        (by_root, (7, 2), "torch.sym_float(x.shape[0]) ** 0.5 < 2.5, but x.shape[0] is 7"),
        (by_power, (7, 2), "2 ** x.shape[0] < 100, but x.shape[0] is 7"),
        (even, (7, 2), "x.shape[0] & 1 == 0, but x.shape[0] is 7"),
        (more_rows, (7, 4), ", but x.shape[1] is 4 and x.shape[0] is 7"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_conditions_that_are_no_range(
    function: Any, wrong: tuple[int, int], said: str, device: str
) -> None:
    """What PyTorch asks of sizes is asked here, in its words."""
    exported = export(function, [torch.ones(6, 2)], [{0: Dim.AUTO, 1: Dim.AUTO}])
    built = compile_for(from_exported_program(exported), device)
    given = torch.arange(12.0).reshape(6, 2)
    for found, expected in zip(
        run(built, [given], device), tree_leaves(function(given)), strict=True
    ):
        assert_same(found, expected)
    with pytest.raises(ValueError) as error:
        run(built, [torch.ones(wrong)], device)
    text = str(error.value).replace("inputs_0", "x")
    assert text.startswith("main: the model was exported for sizes with ")
    assert said in text


def test_conditions_that_only_tell_sizes_apart_are_none() -> None:
    """PyTorch notes that sizes are not one, and not each other, and no result depends on it."""

    def function(x: Any) -> Any:
        return x[::2].expand(3, -1, -1) * torch.ones(x.shape[1])

    exported = export(function, [torch.ones(6, 9)], [{0: Dim.AUTO, 1: Dim.AUTO}])
    assert any("!= 1" in each for each in exported._guards_code)
    built = compile_for(from_exported_program(exported))
    for shape in ((6, 9), (2, 2), (1, 1), (9, 9)):
        given = torch.randn(shape)
        assert_same(*run(built, [given]), function(given))
