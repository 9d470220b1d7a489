"""PyTorch's ``histogram`` and ``histogramdd``, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check, check_all  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

EDGES = torch.tensor([-1, 0, 0.5, 2])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def counted(bins: Any = 5, **how: Any) -> Any:
    """``histogram`` of data, and of weights if given."""
    return lambda x, weight=None: tuple(torch.histogram(x, bins, weight=weight, **how))


@pytest.mark.parametrize(
    "share", [2, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_bins_of_equal_width(share: int) -> None:
    x, unknown = torch.randn(4, 6), torch.tensor([float("nan"), 0.5, float("inf"), 0, 1])
    check_all(
        [
            ("matrix", counted(), (x,)),
            ("one bin", counted(1), (x,)),
            ("double", counted(7), (x.double(),)),
            ("range", counted(range=(-1.0, 1.0)), (x,)),
            ("range of a number", counted(range=(1.0, 1.0)), (torch.tensor([0.4, 1, 1.5, 2]),)),
            ("weights", counted(), (x, torch.rand(4, 6))),
            ("density", counted(density=True), (x, torch.rand(4, 6))),
            ("edges of bins", counted(4, range=(0.0, 4.0)), (torch.arange(6.0),)),
            ("not a number", counted(4, range=(0.0, 1.0)), (unknown,)),
            ("one", counted(), (x[0, :1],)),
            ("none", counted(density=True), (x[:0],)),
            ("a number", counted(2), (x[0, 0],)),
        ][::share]
    )


def test_bins_between_edges() -> None:
    def between(x: Any, edges: Any, weight: Any = None) -> Any:
        return tuple(torch.histogram(x, edges, weight=weight, density=weight is not None))

    x = torch.tensor([-2, -1, 0, 0.25, 0.5, 2, 2.5, float("nan")])
    check_all(
        [
            ("float", between, (x, EDGES)),
            ("double", between, (x.double(), EDGES.double())),
            ("density", between, (x, EDGES, torch.rand(8))),
            ("one bin", between, (x, EDGES[:2])),
            ("none", between, (x[:0], EDGES)),
        ]
    )


def test_of_several_columns() -> None:
    def numbered(x: Any) -> Any:
        counts, edges = torch.histogramdd(x, [3, 4])
        return counts, *edges

    def between(x: Any, first: Any, second: Any) -> Any:
        return torch.histogramdd(x, (first, second), density=True)[0]

    x = torch.randn(20, 2)
    check_all([("numbers", numbered, (x,)), ("edges", between, (x, EDGES, EDGES[1:]))])


def test_on_a_gpu() -> None:
    check(counted(), torch.randn(50), device="cuda")
