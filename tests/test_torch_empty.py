"""Operators of tensors without elements, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def scanned(x: Any) -> Sequence[Any]:
    """Running sums and extremes, and orders, along both dimensions."""
    return (
        *(x.cumsum(0), x.cumsum(1), x.cumprod(0), x.cumprod(-1), x.long().cumsum(0)),
        *(x.cumsum(1, dtype=torch.float64), x.logcumsumexp(0), *x.cummax(0), *x.cummin(1)),
        *(*torch.sort(x, dim=0, stable=True), *x.sort(1), x.argsort(0), x.flip(0), x.softmax(0)),
    )


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)], ids=str)
def test_scans_of_nothing(shape: tuple[int, ...]) -> None:
    check(scanned, torch.zeros(shape))


def test_rows_repeated_of_nothing() -> None:
    def model(x: Any, counts: Any) -> Any:
        return x.repeat_interleave((counts > 1).long(), 0)

    def inputs(rows: int) -> list[Any]:
        return [torch.randn(rows, 3), torch.arange(rows)]

    rows = Dim("rows")
    program = export(model, inputs(5), [{0: rows}, {0: rows}])
    machine = compile_for(from_exported_program(program))
    for count in (5, 0, 1, 2):
        given = inputs(count)
        assert_same(run(machine, given)[0], model(*given), f"{count} rows")


def test_the_median_of_nothing() -> None:
    check(lambda x: (x.median(), x.nanmedian()), torch.zeros(3, 0))
    with pytest.raises(Exception, match="median: there is no median of no integers"):
        check(lambda x: x.median(), torch.zeros(0, dtype=torch.int64))
