"""Grouped products of PyTorch and of transformers' mixtures of experts, against PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ENDS = torch.tensor([2, 2, 11, 16], dtype=torch.int32)


def grouped_mm(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(rows, matrices, offs=ends)


def transposed(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(rows, matrices.transpose(-2, -1), offs=ends)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and matrices of the one type that can be exported."""
    torch.manual_seed(0)
    return torch.randn(16, 32).bfloat16(), torch.randn(4, 32, 24).bfloat16()


def test_grouped_mm(device: str) -> None:
    rows, matrices = operands()
    check(grouped_mm, rows, matrices, ENDS, device=device)
    check(transposed, rows, matrices.transpose(-2, -1).contiguous(), ENDS, device=device)


def test_rows_that_vary() -> None:
    count = torch.export.Dim("count", max=1000)
    check(grouped_mm, *operands(), ENDS, dynamic=({0: count}, {}, {}))


def test_what_is_not_supported_is_refused() -> None:
    """Groups along the sum, which only gradients of experts need."""
    left, right = torch.randn(8, 16).bfloat16(), torch.randn(16, 32).bfloat16()
    with pytest.raises(ScatterError, match=r"_grouped_mm: .* the ranks are 2 and 2"):
        check(grouped_mm, left, right, ENDS)
