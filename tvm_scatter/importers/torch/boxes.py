"""Operators of torchvision on boxes: which are kept, and what they are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.importers.suppression import best_boxes

from .call import TorchCall
from .compaction import true_positions
from .decompose import reads_more_than_first


def nms(call: TorchCall) -> Any:
    """``nms``: the numbers of the boxes that are kept, the best one first."""
    boxes, scores = call["dets"], call["scores"]
    wide = "float64" if str(boxes.ty.dtype) == "float64" else "float32"
    [count] = shape_of(scores)
    boxes = call.reshape(call.cast(boxes, wide), (1, count, 4))
    order, kept = best_boxes(
        call.bb, boxes, call.reshape(scores, (1, 1, count)), float(call["iou_threshold"])
    )
    positions = true_positions(call, kept)
    # Positions are in bounds, so nothing need be checked: this mode defines other indices, too.
    return call.emit(relax.op.take(call.reshape(order, (count,)), positions, 0, mode="clip"))


def roi_align(call: TorchCall) -> Any:
    """``roi_align`` whose boxes are aligned with pixels: TVM moves them before they are scaled."""
    if not call["aligned"]:
        return None
    aligned = relax.op.vision.roi_align(
        call["input"],
        _with_corners(call, operator.sub),
        pooled_size=(call["pooled_height"], call["pooled_width"]),
        spatial_scale=1.0,
        sample_ratio=call["sampling_ratio"],
        aligned=True,
        layout="NCHW",
        mode="avg",
    )
    return call.emit(aligned)


def roi_pool(call: TorchCall) -> Any:
    """``roi_pool``, of which only the greatest elements are read, and not their places.

    Halves are rounded away from zero, which TVM does only where they are positive.
    """
    if reads_more_than_first(call.node):
        raise call.error("the places of the greatest elements are not supported; pool without.")
    size = call["pooled_height"], call["pooled_width"]
    rois = _with_corners(call, _rounded_away)
    pooled = call.emit(relax.op.vision.roi_pool(call["input"], rois, size, 1.0))
    return call.emit(relax.Tuple([pooled]))


def _rounded_away(number: Any, half: Any) -> Any:
    return tirx.Select(number < 0, tirx.ceil(number - half), tirx.floor(number + half))


def _with_corners(call: TorchCall, change: Callable[[Any, Any], Any]) -> Any:
    """The numbers of images, and the corners of boxes, each scaled and changed by a half."""

    def changed(rois: te.Tensor) -> te.Tensor:
        scale, half = (
            tirx.const(number, str(rois.dtype)) for number in (call["spatial_scale"], 0.5)
        )

        def number(box: Any, at: Any) -> Any:
            return tirx.Select(at == 0, rois(box, at), change(rois(box, at) * scale, half))

        return te.compute(rois.shape, number, name="corners")

    return call.compute(changed, call["rois"], name="corners")
