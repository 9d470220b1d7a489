"""Norms of types that TVM's importer does not convert rightly, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.turns(2)
def test_layer_norm(dtype: torch.dtype) -> None:
    norm = torch.nn.LayerNorm((3, 4)).to(dtype)
    torch.nn.init.normal_(norm.weight)
    bare = torch.nn.LayerNorm(4, elementwise_affine=False).to(dtype)
    check(lambda x: (norm(x).detach(), bare(x)), torch.randn(2, 3, 4).to(dtype))


def test_group_norm_without_a_weight() -> None:
    bare, whole = torch.nn.GroupNorm(2, 4, affine=False), torch.nn.GroupNorm(2, 4)
    torch.nn.init.normal_(whole.weight)
    check(lambda x: (bare(x), whole(x).detach()), torch.randn(3, 4, 5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.turns(3)
def test_batch_norms(dtype: Any) -> None:
    norms = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm1d(4, affine=False)
    for norm in norms:
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        norm.eval().to(dtype)

    def model(x: Any) -> Sequence[Any]:
        return norms[0](x).relu(), norms[1](x[0, 0]) * 2

    check(model, torch.randn(2, 3, 4, 4).to(dtype))
