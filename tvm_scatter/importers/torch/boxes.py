"""``torchvision.ops.nms``: the boxes that no better one overlaps."""

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
