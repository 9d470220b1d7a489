"""PyTorch's searches in sorted sequences, and repeats by a tensor, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NAN = float("nan")
SEQUENCE = torch.tensor([1.0, 2, 2, 4, 7])
VALUES = torch.tensor([[0.0, 2, 3, -0.0], [7, 8, NAN, -5]])
ORDER = torch.tensor([4, 2, 1, 0, 3])
REPEATS = torch.tensor([1, 3, 0, 2])


def found(s: Any, v: Any, order: Any) -> tuple[Any, ...]:
    rows = torch.stack([s, s + 1])
    return (
        *(torch.searchsorted(s, v, right=right) for right in (False, True)),
        *(torch.searchsorted(rows, v, side="right"), torch.searchsorted(rows, v, out_int32=True)),
        *(
            torch.searchsorted(s, 2.0),
            torch.searchsorted(s, 2, right=True),
            torch.searchsorted(s, 9),
        ),
        torch.searchsorted(s[order], v, sorter=torch.argsort(s[order], stable=True)),
        torch.searchsorted(rows[:, order], v, sorter=torch.argsort(rows[:, order], stable=True)),
        *(torch.bucketize(v, s), torch.bucketize(v, s, right=True, out_int32=True)),
        *(
            torch.bucketize(2, s),
            torch.bucketize(v[0, 0], s),
            torch.bucketize(order, order.sort()[0]),
        ),
        *(torch.bucketize(v.nan_to_num().long(), s), torch.searchsorted(s.double(), v.double())),
        *(torch.bucketize(v, s[:1]), torch.bucketize(v, s[:0]), torch.bucketize(v[:, :0], s)),
    )


@pytest.mark.each_device
def test_found(device: str) -> None:
    if device == "llvm":
        check(found, SEQUENCE, VALUES, ORDER)
    else:
        check(lambda s, v: (torch.bucketize(v, s), s * 2), SEQUENCE, VALUES, device=device)


def repeated(x: Any, repeats: Any, size: Any = None) -> Any:
    return torch.repeat_interleave(x, repeats, 0, output_size=size)


@pytest.mark.each_device
def test_repeated(device: str) -> None:
    x = torch.randn(4, 3)

    def every(x: Any, repeats: Any) -> tuple[Any, ...]:
        return (
            *(repeated(x, repeats, 6), repeated(x, repeats), torch.repeat_interleave(repeats)),
            *(
                repeated(x, repeats[1:2]),
                torch.repeat_interleave(x, 2, 1),
                repeated(x, repeats * 0),
            ),
            *(repeated(x.T, repeats[:3].int()), repeated(x[:0], repeats[:0])),
        )

    if device == "llvm":
        check(every, x, REPEATS)
    else:
        check(lambda x, repeats: repeated(x, repeats) + 1, x, REPEATS, device=device)


@pytest.mark.turns(2)
@pytest.mark.parametrize("count", [2**62, 2**63 - 1])
def test_more_repeats_than_memory(count: int, device: str) -> None:
    """As many bytes as TVM would take for a few; the sum of two such repeats overflows."""
    given = [torch.randn(3), torch.tensor([1, 2, 0])]
    machine = compile_for(from_exported_program(export(repeated, given)), device)
    with pytest.raises(ValueError, match=r"the size repeat_interleave\w+ of a tensor must be"):
        run(machine, [given[0], torch.tensor([count, count, 0])], device)


def test_repeats_of_a_dynamic_number() -> None:
    number = torch.export.Dim("number", max=1000)
    program = export(repeated, [torch.randn(4, 3), REPEATS], dynamic=({0: number}, {0: number}))
    machine = compile_for(from_exported_program(program))
    for repeats in (REPEATS, REPEATS[:2], REPEATS[2:3], REPEATS * 40, REPEATS[:0]):
        x = torch.randn(len(repeats), 3)
        (result,) = run(machine, [x, repeats])
        assert_same(result, repeated(x, repeats))
