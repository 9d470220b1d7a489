"""PyTorch's sorts, and what it picks from a sorted dimension, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NAN, INFINITY = float("nan"), float("inf")
FLOATS = torch.tensor(
    [[3, -1, NAN, 2, 2, -0.0], [0, INFINITY, -INFINITY, NAN, 1, 0], [NAN, NAN, 5, 5, -5, 5]]
)
INTEGERS = torch.tensor([[3, 1, 1, -2], [7, 7, 0, 7], [-(2**40), 2**40, 1, 1]])
BOOLEANS = INTEGERS > 1


def orders(f: Any, i: Any, b: Any) -> Sequence[Any]:
    """Sorted values, and the positions of equal ones as they come."""
    return (
        *(each for x in (f, i, b) for each in torch.sort(x, stable=True)),
        *(each for x in (f, i) for each in torch.sort(x, dim=0, descending=True, stable=True)),
        *(torch.argsort(f, stable=True, descending=True), torch.argsort(i[0], stable=True)),
        *(torch.sort(f)[0], torch.sort(f, descending=True)[0], torch.msort(i), torch.sort(f[0, 0])),
        *(f.half().sort()[0], f.double().sort(0)[0], i.to(torch.uint8).sort()[0]),
    )


def picks(f: Any, i: Any, b: Any) -> Sequence[Any]:
    """The greatest values, and those in the middle. Positions of equal values may differ."""
    distinct = f[1, :4]
    return (
        *(torch.topk(x, 2, sorted=way)[0] for x in (f, i) for way in (True, False)),
        *(torch.topk(f, 2, largest=False)[0], torch.topk(i, 1, 0)[0], torch.topk(f, 0)[0]),
        *(
            *torch.topk(distinct, 3),
            *torch.topk(distinct, 4, largest=False),
            *torch.topk(f[0, 0], 1),
        ),
        *(torch.kthvalue(i, 2)[0], torch.kthvalue(i, 3, 0, True)[0], *torch.kthvalue(distinct, 1)),
        *(f.median(), i.median(), f.median(1)[0], i.median(0, True)[0], *distinct.median(0)),
        *(f.nanmedian(), f.nanmedian(1)[0], f.nanmedian(0, True)[0], f[:, :2].median()),
        *(i.mode(1)[0], f[1:].nan_to_num(9).mode(1)[0], i.mode(0, True)[0]),
    )


def flat(results: Sequence[Any]) -> list[Any]:
    return [x for each in results for x in (each if isinstance(each, tuple) else [each])]


def test_orders() -> None:
    check(lambda *inputs: flat(orders(*inputs)), FLOATS, INTEGERS, BOOLEANS)


def test_picks() -> None:
    check(lambda *inputs: flat(picks(*inputs)), FLOATS, INTEGERS, BOOLEANS)


def every(f: Any, i: Any) -> list[Any]:
    return [
        *(*torch.sort(f, dim=1, stable=True), *torch.sort(i, dim=0, descending=True, stable=True)),
        *(*torch.topk(i.double() + f[:, :1], 1), f.median(1)[0], i.kthvalue(1, 1)[0]),
        *(torch.topk(f.nan_to_num(), 1, 0)[0], i.mode(0)[0]),
    ]


def test_sorts_on_a_gpu() -> None:
    generator = torch.Generator().manual_seed(0)
    f = torch.randint(-3, 3, (2, 37), generator=generator).float()
    f[0, 3] = NAN
    i = torch.randint(-2, 2, (2, 3), generator=generator)
    check(lambda f, i: flat(every(f, i)[:4]), f, i, device="cuda")
    check(lambda f, i: flat(every(f.nan_to_num(), i)[6:]), f, i, device="cuda")


@pytest.mark.on_cpu
def test_sorts_of_any_size(device: str) -> None:
    rows, columns = (torch.export.Dim(name, max=5000) for name in ("rows", "columns"))

    def function(f: Any) -> list[Any]:
        return [
            *torch.sort(f, dim=1, descending=True, stable=True),
            torch.sort(f, dim=0, stable=True)[1],
        ]

    program = export(function, [FLOATS], dynamic=({0: rows, 1: columns},))
    machine = compile_for(from_exported_program(program), device)
    for size in [(3, 6), (1, 1), (2, 1), (1, 2), (2, 70)]:
        x = torch.randint(-3, 3, size).float()
        for found, wanted in zip(run(machine, [x], device), function(x), strict=True):
            assert_same(found, wanted, f"size {size}")
