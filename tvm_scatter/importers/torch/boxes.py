"""``torchvision.ops.nms``, the boxes that no better one overlaps, and ``roi_align``."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.importers.suppression import best_boxes

from .call import TorchCall
from .compaction import true_positions


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
    rois, dtype = call["rois"], str(call["rois"].ty.dtype)
    images = call.emit(relax.op.strided_slice(rois, [1], [0], [1]))
    boxes = call.emit(relax.op.strided_slice(rois, [1], [1], [5]))
    scaled = call.emit(relax.op.multiply(boxes, relax.const(call["spatial_scale"], dtype)))
    moved = call.emit(relax.op.subtract(scaled, relax.const(0.5, dtype)))
    aligned = relax.op.vision.roi_align(
        call["input"],
        call.emit(relax.op.concat([images, moved], 1)),
        pooled_size=(call["pooled_height"], call["pooled_width"]),
        spatial_scale=1.0,
        sample_ratio=call["sampling_ratio"],
        aligned=True,
        layout="NCHW",
        mode="avg",
    )
    return call.emit(aligned)
