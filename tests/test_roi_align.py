"""``torchvision.ops.roi_align``, of which TVM moves aligned boxes by the wrong distance."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

import torch_harness  # noqa: E402
from models.libraries import LIBRARY  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

if LIBRARY is not None:
    # Its shapes are registered when torchvision is imported, its kernels are not there.
    from torchvision.ops.roi_align import _roi_align

    LIBRARY.impl("roi_align", lambda *given: _roi_align(*given), "CPU")
    LIBRARY.impl(
        "roi_align", lambda x, rois, _, *size: x.new_empty(len(rois), x.shape[1], *size[:2]), "Meta"
    )


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_agrees_with_torchvision(aligned: bool, ratio: int, device: str) -> None:
    def pooled(x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 2, 3, ratio, aligned)

    # Outside of an image, and of a box of no size, torchvision's form in PyTorch is another one.
    rois = torch.tensor([[0, 2.0, 3, 9, 12], [1, -1, 0, 16, 7], [1, 3, 1, 5, 14], [0, 6, 5, 8, 6]])
    torch_harness.check(pooled, torch.randn(2, 3, 8, 9), rois, device=device)


def test_an_aligned_box_begins_half_a_pixel_before() -> None:
    """Of pixels 0 to 7 in each row, a box from 2 to 6 at half the size covers 0.5 to 2.5."""

    def pooled(x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 1, 2, 1, True)

    x = torch.arange(8.0).repeat(8, 1)[None, None]
    rois = torch.tensor([[0, 2.0, 2, 6, 6]])
    assert pooled(x, rois).flatten().tolist() == [1.0, 2.0]
    [found] = torch_harness.through_tvm(pooled, [x, rois])
    assert found.flatten().tolist() == [1.0, 2.0]
