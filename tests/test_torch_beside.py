"""Windows, distances, scans and functions of single elements, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NAN, INFINITY = float("nan"), float("inf")
FLOATS = torch.tensor([[3, -1, NAN, 2, 2, -0.0], [0, INFINITY, -INFINITY, NAN, 1, 0]])
INTEGERS = torch.tensor([[3, 1, 1, -2], [7, 7, 0, 7]])
POINTS = torch.arange(60.0).reshape(3, 4, 5).sin()


def windows(x: Any, f: Any, i: Any) -> tuple[Any, ...]:
    plane = torch.stack([x, x.flip(0)])[:, :, :, :4]
    return (
        *(x.unfold(1, 2, 1), x.unfold(2, 3, 2), x.unfold(0, 3, 1), x.unfold(2, 1, 4)),
        *functional.adaptive_max_pool2d(x, (3, 2), return_indices=True),
        *functional.adaptive_max_pool2d(plane, (1, 4), return_indices=True),
        *functional.adaptive_max_pool1d(x, 3, return_indices=True),
        *functional.adaptive_max_pool3d(plane, (2, 3, 2), return_indices=True),
        functional.max_unpool2d(*functional.max_pool2d(plane, 2, 1, return_indices=True), 2, 1),
        functional.unfold(plane, (2, 3), 2, 1),
        functional.fold(functional.unfold(plane, 2), plane.shape[2:], 2),
    )


def distances(x: Any, f: Any, i: Any) -> tuple[Any, ...]:
    return (
        *(torch.cdist(x[0], x[1], p) for p in (0.0, 1.0, 2.0, 2.5, INFINITY)),
        *(torch.cdist(x, x[:1, :2]), functional.pdist(x[0]), functional.pdist(x[0], 1)),
        *(torch.cdist(x[0], x[0]).topk(2, largest=False)[1], torch.cdist(x[0, :1], x[1, :0])),
        functional.pairwise_distance(x[0], x[1]),
    )


def scans(x: Any, f: Any, i: Any) -> tuple[Any, ...]:
    return (
        *(*torch.cummax(i, 1), *torch.cummin(i, 0), *torch.cummax(f, 1), *torch.cummin(f, 1)),
        *(*torch.cummin(i[0, 0], 0), *torch.cummax(i[:, :1], 1), *torch.cummax(i > 0, 1)),
        *(torch.logcumsumexp(x, 1), torch.logcumsumexp(f, 1), torch.logcumsumexp(100 * x, 0)),
        torch.logcumsumexp(x[0, 0, :2].half(), 0),
    )


def elements(x: Any, f: Any, i: Any) -> tuple[Any, ...]:
    small = i.int()
    return (
        *(getattr(torch, name)(i) for name in ("exp", "sin", "tanh", "sigmoid", "erf", "atan")),
        *(torch.log(i.abs()), torch.exp2(x), torch.exp2(i), torch.hypot(x, 2 * x), f != f, f == f),
        *(i != f[:, :4], f != 2, torch.hypot(x * 0, x * 0), functional.selu(x), functional.elu(x)),
        *(functional.celu(x, 0.5), f.any(), f.any(1), i.all(), i.all(1, True), i.any((0, 1))),
        *((i > 3).any(0), torch.any(i[:, :0], 1), torch.all(i[:, :0], 1), i[0, 0].any()),
        *(torch.logical_and(i, f[:, :4]), torch.logical_xor(i, i - 1), torch.logical_not(f)),
        *(torch.cat([i, f], 1), torch.stack([i, small]), torch.cat([x[0, 0, :0], x[0, 0]])),
        *(torch.cat([i > 0, i]), x.double() @ x.double().mT, i @ i.T, x.half() @ x.half().mT),
        torch.addmm(
            x[0].double(), x[0].double(), x[0, :, :1].double().expand(4, 5).T @ x[0].double()
        ),
        *(i[0] @ i[1], i | small, i & 3, ~i, ~(i > 0), (i > 0) | (i < 3), i ^ small),
    )


@pytest.mark.parametrize("function", [windows, distances, scans, elements])
@pytest.mark.turns(2)
def test_beside(function: Any) -> None:
    check(function, POINTS, FLOATS, INTEGERS)


@pytest.mark.parametrize("decompose", [True, False])
def test_truth_of_bytes_is_bytes(decompose: bool) -> None:
    """And an empty list of dimensions reduces none of them."""

    def truths(bytes_: Any, i: Any) -> tuple[Any, ...]:
        return (
            *(found for x in (bytes_, i) for found in (x.any(), x.any(0), x.all(), x.all(1, True))),
            *(found for x in (bytes_, i) for found in (x.any((0, 1)), x.all((0, 1)))),
            *(found for x in (bytes_, i) for found in (x.any(()), x.all(()))),
            *(bytes_[:0].any(0), bytes_[:0].all(), bytes_[0, 0].any(), ~bytes_.any(0)),
            torch.zeros(4, dtype=torch.uint8).index_add(0, torch.arange(4), bytes_.any(0)),
            *(bytes_.logical_not(), bytes_.logical_xor(i)),
        )

    check(truths, INTEGERS.to(torch.uint8), INTEGERS, run_ep_decomposition=decompose)


def test_beside_on_a_gpu() -> None:
    def some(x: Any, f: Any, i: Any) -> tuple[Any, ...]:
        return (
            *(x.unfold(2, 3, 2), torch.cdist(x[0], x[1]), *torch.cummax(i, 1), f.any(1)),
            *functional.adaptive_max_pool2d(x, (3, 2), return_indices=True),
            *(torch.logcumsumexp(x, 1), torch.cat([i, f], 1), f != f),
        )

    check(some, POINTS, FLOATS, INTEGERS, device="cuda")


@pytest.mark.on_cpu
def test_running_extremes_of_a_dynamic_number(device: str) -> None:
    number = torch.export.Dim("number", max=1000)
    rows = torch.arange(12.0).reshape(6, 2).sin()
    program = export(lambda x: torch.cummax(x, 0), [rows], dynamic=({0: number},))
    machine = compile_for(from_exported_program(program), device)
    for count in (6, 1, 300):
        x = torch.randn(count, 2)
        for found, wanted in zip(run(machine, [x], device), torch.cummax(x, 0), strict=True):
            assert_same(found, wanted)
