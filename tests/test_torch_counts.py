"""PyTorch's ``bincount``, whose size only the run time knows, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import (  # noqa: E402
    assert_same,
    check,
    check_all,
    compile_for,
    export,
    run,
)
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = torch.tensor([3, 0, 3, 5, 1])


def counts(least: int) -> Any:
    return lambda x, weights=None: torch.bincount(x, weights, least)


def test_counts() -> None:
    weights = torch.tensor([0.5, 2, -1, 4, 8])
    check_all(
        [
            ("as many as the greatest asks for", counts(0), (NUMBERS,)),
            ("at least", counts(9), (NUMBERS,)),
            ("at least fewer", counts(2), (NUMBERS.int(),)),
            ("weights", counts(0), (NUMBERS, weights)),
            ("double weights", counts(7), (NUMBERS.to(torch.uint8), weights.double())),
            ("weights of integers", counts(6), (NUMBERS, weights.long())),
            ("half weights", counts(6), (NUMBERS, weights.half())),
            ("one", counts(0), (NUMBERS[1:2],)),
            ("none", counts(3), (NUMBERS[:0],)),
        ]
    )


def test_counts_of_a_dynamic_number() -> None:
    entries = torch.export.Dim("entries", max=1000)
    program = export(counts(4), [NUMBERS], dynamic=({0: entries},))
    machine = compile_for(from_exported_program(program))
    for numbers in (NUMBERS, NUMBERS[:2], NUMBERS[:0]):
        (found,) = run(machine, [numbers])
        assert_same(found, torch.bincount(numbers, minlength=4))


@pytest.mark.parametrize("number", [2**62, 2**63 - 1])
@pytest.mark.turns(2)
def test_more_counts_than_memory(number: int, device: str) -> None:
    """As many bytes as TVM would take for a few, or a negative number."""
    machine = compile_for(from_exported_program(export(counts(4), [NUMBERS])), device)
    with pytest.raises(ValueError, match=r"the size bincount\w+ of a tensor must be"):
        run(machine, [NUMBERS.clone().fill_(number)], device)


def test_counts_used_by_a_model() -> None:
    def degrees(x: Any) -> Any:
        return torch.bincount(x, minlength=8)[x].float().rsqrt()

    check(degrees, NUMBERS)


def test_counts_on_a_gpu() -> None:
    check(counts(8), NUMBERS, device="cuda")


def test_counts_up_to_a_number() -> None:
    """PyTorch knows that there are so many; then the counts meet tensors of that length."""

    def means(at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        counts = at.bincount(minlength=8)[:8]
        return torch.zeros(8).index_add(0, at, x) / counts.clamp(min=1)

    check(means, torch.randint(0, 8, (20,)), torch.randn(20))
