"""Operators of torchvision on boxes: which are kept, and what they are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.importers.suppression import best_boxes
from tvm_scatter.ops.expectations import AT_MOST, NOT_NEGATIVE
from tvm_scatter.problem.sizes import as_expression

from .call import TorchCall
from .compaction import true_positions
from .decompose import reads_more_than_first
from .ordering import keys


def nms(call: TorchCall) -> Any:
    """``nms``: the numbers of the boxes that are kept, the best one first."""
    boxes, scores = call["dets"], call["scores"]
    wide = "float64" if str(boxes.ty.dtype) == "float64" else "float32"
    [count] = shape_of(scores)
    # In the order that PyTorch sorts in: what is no number is the best.
    scores = keys(call, scores)
    boxes = call.reshape(call.cast(boxes, wide), (1, count, 4))
    order, kept = best_boxes(
        call.bb, boxes, call.reshape(scores, (1, 1, count)), float(call["iou_threshold"])
    )
    positions = true_positions(call, kept)
    # Positions are in bounds, so nothing need be checked: this mode defines other indices, too.
    return call.emit(relax.op.take(call.reshape(order, (count,)), positions, 0, mode="clip"))


def roi_align(call: TorchCall) -> Any:
    """``roi_align``. TVM moves boxes that are aligned with pixels before they are scaled.

    PyTorch interpolates images of 16 bits in single precision.
    """
    image = call["input"]
    dtype = str(image.ty.dtype)
    pooled = relax.op.vision.roi_align(
        call.cast(image, "float64" if dtype == "float64" else "float32"),
        _scaled_boxes(call, operator.sub if call["aligned"] else _unchanged),
        pooled_size=(call["pooled_height"], call["pooled_width"]),
        spatial_scale=1.0,
        sample_ratio=call["sampling_ratio"],
        aligned=call["aligned"],
        layout="NCHW",
        mode="avg",
    )
    return call.cast(call.emit(pooled), dtype)


def roi_pool(call: TorchCall) -> Any:
    """``roi_pool``, of which only the greatest elements are read, and not their places.

    Halves are rounded away from zero, which TVM does only where they are positive.
    """
    if reads_more_than_first(call.node):
        raise call.error("the places of the greatest elements are not supported; pool without.")
    size = call["pooled_height"], call["pooled_width"]
    boxes = _scaled_boxes(call, _rounded_away)
    return call.emit(
        relax.Tuple([call.emit(relax.op.vision.roi_pool(call["input"], boxes, size, 1.0))])
    )


def _unchanged(number: Any, _half: Any) -> Any:
    return number


def _rounded_away(number: Any, half: Any) -> Any:
    return tirx.Select(number < 0, tirx.ceil(number - half), tirx.floor(number + half))


def _scaled_boxes(call: TorchCall, change: Callable[[Any, Any], Any]) -> Any:
    """The boxes, with their corners scaled and changed by a half.

    TVM reads the image whose number stands in front of them, whichever it is. So it is checked
    under ``raise``, and what is no image's number is that of the first otherwise.
    """
    rois, images = call["rois"], shape_of(call["input"])[0]
    numbers = call.cast(call.emit(relax.op.strided_slice(rois, [1], [0], [1])), "int64")
    for rule, limit in ((NOT_NEGATIVE, 0), (AT_MOST, images - 1)):
        rois = call.expect_numbers("the number of a box's image", rois, numbers, rule, limit)

    def scaled(rois: te.Tensor, images: Any) -> te.Tensor:
        dtype = str(rois.dtype)
        scale, half = (tirx.const(number, dtype) for number in (call["spatial_scale"], 0.5))

        def number(box: Any, at: Any) -> Any:
            image = rois(box, tirx.IntImm("int64", 0))
            exists = tirx.all(image >= 0, image < images.astype(dtype))
            image = tirx.Select(exists, image, tirx.const(0, dtype))
            return tirx.Select(at == 0, image, change(rois(box, at) * scale, half))

        return te.compute(rois.shape, number, name="boxes")

    return call.compute(scaled, rois, as_expression(images), name="boxes")
