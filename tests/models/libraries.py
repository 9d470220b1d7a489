"""Load torchvision with a PyTorch that was built without CUDA.

The wheel of torchvision is linked against the CUDA libraries of PyTorch. Without them its operators
are missing, and registering their shapes fails when it is imported, also by transformers. The
operators themselves are not needed: torchvision has a form in PyTorch for those that models here
use. So their names are enough.
"""

from __future__ import annotations

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
)


def _define_missing_operators() -> torch.library.Library | None:
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        return library
    return None


#: Kept: the operators are gone with it.
LIBRARY = _define_missing_operators()
