"""PyTorch's ``unique`` and its kin, whose sizes only the run time knows, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = torch.tensor([[3, 1, 1, -2], [3, 1, 1, -2], [7, 7, 0, 7]])
FLOATS = torch.tensor([2.0, float("nan"), -0.0, 2.0, 0.0, float("nan"), -1.0])
BOTH = {"return_inverse": True, "return_counts": True}


def every(x: Any, f: Any) -> tuple[Any, ...]:
    return (
        *torch.unique(x, **BOTH),
        *torch.unique(f, **BOTH)[:1],
        *torch.unique(x > 1, return_counts=True),
        *torch.unique(x, dim=0, **BOTH),
        *torch.unique(x, dim=1, **BOTH),
        *torch.unique_consecutive(x, **BOTH),
        *torch.unique_consecutive(x, dim=0, **BOTH),
        *torch.unique_consecutive(f[[0, 3, 2, 4]], **BOTH),
        *(torch.unique(x[:1, :1]), torch.unique(x[0, 0]), torch.unique(x[:0])),
    )


def test_unique() -> None:
    check(every, NUMBERS, FLOATS)


def relabelled(x: Any) -> Any:
    """Sums by label: what a graph of other node numbers does at first."""
    labels, inverse, counts = torch.unique(x, **BOTH)
    total = torch.zeros(labels.shape[0]).index_add(0, inverse, torch.ones(x.shape[0]))
    return labels, total / counts


@pytest.mark.on_cpu
def test_unique_of_a_dynamic_number(device: str) -> None:
    number = torch.export.Dim("number", max=1000)
    program = export(relabelled, [NUMBERS[0]], dynamic=({0: number},))
    machine = compile_for(from_exported_program(program), device)
    for count in (4, 1, 2, 60):
        x = torch.randint(0, 9, (count,))
        for found, wanted in zip(run(machine, [x], device), relabelled(x), strict=True):
            assert_same(found, wanted)


def test_slices_of_known_size_and_any_number() -> None:
    def rows(x: Any) -> Any:
        return torch.unique(x, dim=0, return_inverse=True)

    program = export(rows, [NUMBERS], [{0: torch.export.Dim.AUTO}])
    machine = compile_for(from_exported_program(program))
    for x in (NUMBERS, NUMBERS[:2], torch.cat([NUMBERS, NUMBERS + 1])):
        for actual, wanted in zip(run(machine, [x]), rows(x), strict=True):
            assert_same(actual, wanted)


def test_slices_of_any_size_are_refused() -> None:
    auto = torch.export.Dim.AUTO
    program = export(lambda x: torch.unique(x, dim=0), [NUMBERS], [{0: auto, 1: auto}])
    with pytest.raises(ScatterError, match="unique_dim: only the size of the axis dim may"):
        from_exported_program(program)
