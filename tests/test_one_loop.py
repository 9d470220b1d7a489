"""Tensors of one shape that are computed from the same, by one kernel, against PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, check, export, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def both(x: Any) -> Any:
    return x.relu() * 2, x.sigmoid() + 1


def one_from_the_other(x: Any) -> Any:
    first = x * 3
    second = first.tanh()
    return first, second, first - second


def columns(x: Any) -> Any:
    y = x.exp()
    return y[:, 0] + y[:, 1], y[:, 1] * 2, (y[:, 0] > 1).long()


def other_axes(x: Any) -> Any:
    return (x * 2)[:, None], (x + 1)[None], (x - 1).unsqueeze(-1), x.abs()


def broadcast(x: Any) -> Any:
    scale = x[:, :1].exp()
    return x * scale, x / scale, x[0] + x, scale


def parts(x: Any) -> Any:
    first, second = x * 2, x.cos()
    return torch.cat([first, second, x - 1]), torch.cat([second, first], 1), second * 3


def stacked(x: Any) -> Any:
    first, second = x * 2, x.cos()
    return torch.stack([first, second, first * second], -1), torch.stack([second, first]), first + 1


def joined(x: Any) -> Any:
    first = x * 2
    return torch.cat([first, x.cos(), x - 1]), torch.stack([first.exp(), first], -1), first + 3


def padded(x: Any) -> Any:
    y = x * 2
    wide = functional.pad(y, (1, 2)) + functional.pad(y, (2, 1))
    return wide, functional.pad(y.relu(), (3, 0)) - wide, y


def chosen(x: Any) -> Any:
    y = x.sigmoid()
    return torch.where(y > 0.5, x, y), torch.where(x > 0, y, -x), (y > 0.5) & (x < 1)


def truths(x: Any) -> Any:
    y = x > 0
    return y, ~y, y.to(x.dtype), y | (x < -1)


def types(x: Any) -> Any:
    y = x * 4
    whole = y.abs()
    return y.half(), y.to(torch.bfloat16), y.double(), y.to(torch.int8), y.long(), whole.byte()


def halves(x: Any) -> Any:
    y = x.half()
    return y * 2, (y + 1).float(), y.to(torch.bfloat16), y.relu()


def summed(x: Any) -> Any:
    y = x * x
    return y.sum(1), y + 1, y.sum(), x.relu() + y


def in_front_of_products(x: Any) -> Any:
    y = x.relu()
    return y @ y.T, (x.sigmoid() @ x.T).relu(), y + 1, y - 1


def turned(x: Any) -> Any:
    y = x * 2
    return y.T + 1, y.T.reshape(-1), y, y.flip(0)


def numbers(x: Any) -> Any:
    return x.sum() * 2, x.sum() + 1, torch.zeros(3) + 1


#: Programs of a matrix.
PROGRAMS: tuple[Callable[..., Any], ...] = (
    *(both, one_from_the_other, columns, other_axes, broadcast, parts, stacked, joined),
    *(padded, chosen, truths, types, halves, summed, in_front_of_products, turned, numbers),
)


def matrix(*shape: int) -> Any:
    given = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=given)


def every(x: Any) -> Any:
    return [each for program in PROGRAMS for each in program(x)]


@pytest.mark.each_device
def test_by_eye(device: str) -> None:
    x = torch.tensor([-1.0, 0.0, 2.0])

    def program(x: Any) -> Any:
        y = x + 1
        return y, y * y, torch.cat([y, x * 2]), torch.stack([x, y], 1)

    wanted = (
        [0, 1, 3],
        [0, 1, 9],
        [0, 1, 3, -2, 0, 4],
        [[-1, 0], [0, 1], [2, 3]],
    )
    for found, by_eye in zip(through_tvm(program, [x], device=device), wanted, strict=True):
        assert_same(found, torch.tensor(by_eye, dtype=torch.float32))


#: Odd rows, rows of whole vectors, and one row; more where there is time.
SHAPES = [
    *((5, 3), (4, 8)),
    *(pytest.param(shape, marks=pytest.mark.exhaustive) for shape in ((1, 2), (33, 64), (3, 257))),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.turns(2)
def test_programs(shape: tuple[int, int], device: str) -> None:
    check(every, matrix(*shape), device=device)


@pytest.mark.parametrize(
    "shape", [(5, 4), *(pytest.param(s, marks=pytest.mark.exhaustive) for s in ((1, 2), (33, 64)))]
)
@pytest.mark.turns(2)
def test_unknown_rows(shape: tuple[int, int], device: str) -> None:
    check(every, matrix(*shape), dynamic=[{0: Dim.AUTO}], device=device)


def test_no_rows(device: str) -> None:
    def program(x: Any) -> Any:
        return *both(x), *parts(x), *stacked(x), *types(x)

    check(program, matrix(0, 4), device=device)
    check(program, matrix(3, 0), device=device)
    check(program, matrix(0, 4), dynamic=[{0: Dim.AUTO}], device=device)


def test_corners_of_cells(device: str) -> None:
    """What splats into a grid and reads from it again."""
    side = 5

    def program(place: Any, mass: Any) -> Any:
        at = place.clamp(0.1, side - 1.1)
        part, cell = at - at.floor(), at.floor().long()
        grid, corners = torch.zeros(side * side), []
        for steps in product((0, 1), repeat=2):
            weight = torch.ones_like(mass)
            for axis, step in enumerate(steps):
                weight = weight * (part[:, axis] if step else 1 - part[:, axis])
            index = (cell[:, 0] + steps[0]) * side + cell[:, 1] + steps[1]
            corners.append((index, weight))
            grid = grid.index_add(0, index, mass * weight)
        return grid, sum(grid[index] * weight for index, weight in corners)

    place = torch.rand(40, 2, generator=torch.Generator().manual_seed(1)) * side
    for dynamic in (None, [{0: Dim.AUTO}, {0: Dim.AUTO}]):
        check(program, place, matrix(40), dynamic=dynamic, device=device)


def test_all_that_is_put_side_by_side_is_read_there(device: str) -> None:
    """A loop of one result, whose parts are all read again."""

    def program(grid: Any, place: Any, weight: Any) -> Any:
        index, other = place.long(), (place + 1).long()
        added = grid.index_add(0, index, weight * 2).index_add(0, other, weight * 3)
        return added, added[index] * weight, added[other]

    given = torch.zeros(64), torch.rand(33) * 60, matrix(33)
    for dynamic in (None, [None, {0: Dim.AUTO}, {0: Dim.AUTO}]):
        check(program, *given, dynamic=dynamic, device=device)


def kernels(program: Callable[..., Any], *inputs: Any, dynamic: Any = None, **options: Any) -> Any:
    """The names of the kernels of a program."""
    module = from_exported_program(export(program, inputs, dynamic))
    source = cuda(module, **options)
    return set(re.findall(r"__global__ void __launch_bounds__\(\d+\) (\w+)\(", source))


@pytest.mark.parametrize("dynamic", [None, [{0: Dim.AUTO}]], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "program",
    [both, one_from_the_other, joined, chosen, truths, types, halves],
    ids=lambda program: program.__name__,
)
@pytest.mark.turns(2)
def test_one_kernel(program: Callable[..., Any], dynamic: Any) -> None:
    x = matrix(64, 32)
    assert len(kernels(program, x, dynamic=dynamic)) == 1
    assert len(kernels(program, x, dynamic=dynamic, loops=False)) > 1


def test_what_tvm_fuses_stays_fused() -> None:
    """No result is written for a reader that computes it itself."""

    def one_result(x: Any) -> Any:
        y = x.relu()
        return y * y.sigmoid() + y

    def behind_a_product(x: Any) -> Any:
        return (x @ x.T) * x, x + 1

    assert len(kernels(one_result, matrix(64, 32))) == 1
    names = kernels(behind_a_product, matrix(64, 64))
    assert any("matmul" in name and "multiply" in name for name in names), names


def test_nothing_waits_for_a_product() -> None:
    """A tensor that is needed behind a product is not computed in front of it."""

    def program(x: Any) -> Any:
        return (x.relu() @ x.T).sum(1), x.sigmoid()

    x = matrix(64, 64)
    assert kernels(program, x) == kernels(program, x, loops=False)


def test_what_takes_too_many_operations_is_computed_apart() -> None:
    def program(x: Any) -> Any:
        found = [x, x + 1, x + 2]
        for _ in range(20):
            found = [each.tanh() for each in found]
        return tuple(found)

    x = matrix(40, 6)
    assert kernels(program, x) == kernels(program, x, loops=False)


@pytest.mark.turns(3)
def test_what_comes_later(device: str) -> None:
    """A tensor that is read between others is not computed before what it is computed from."""

    def program(x: Any) -> Any:
        first = x * 2
        total = first.cumsum(0)
        second = first + total
        return first, second, second.sort(0)[0] + second, total * first

    check(program, matrix(5, 3), device=device)
