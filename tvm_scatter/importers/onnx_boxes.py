"""ONNX's ``NonMaxSuppression`` and ``RoiAlign``, which TVM's importer reads in a way of its own."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.suppression import best_boxes
from tvm_scatter.ops.compaction import true_positions

from .onnx_stock import Node


def non_max_suppression(node: Node) -> Any:
    """A row for each box that is kept: the image, the class and the box."""
    bb = node.bb
    boxes, scores, most, overlap, least = [*node.inputs, None, None, None][:5]
    most, overlap, least = map(_number, (most, overlap, least))
    corners = _of_centers if node.attributes.get("center_point_box", 0) else _in_order
    boxes = bb.emit_te(corners, bb.normalize(boxes), primfunc_name_hint="corners")
    order, kept = best_boxes(bb, boxes, bb.normalize(scores), overlap or 0.0, least, int(most or 0))
    found = bb.emit(true_positions(kept, operator="NonMaxSuppression"))
    places = bb.match_cast(found, relax.TensorType([tirx.Var("boxes", "int64")], "int64"))
    return bb.emit_te(_rows, places, order, primfunc_name_hint="selected_boxes")


def _in_order(boxes: te.Tensor) -> te.Tensor:
    """Two corners of each box, the lesser one first."""

    def corner(b: Any, n: Any, at: Any) -> Any:
        one, other = boxes[b, n, at], boxes[b, n, tirx.floormod(at + 2, 4)]
        return tirx.Select(at < 2, tirx.min(one, other), tirx.max(one, other))

    return te.compute(boxes.shape, corner, name="corners")


def _of_centers(boxes: te.Tensor) -> te.Tensor:
    """The corners of boxes that are given by their centers, widths and heights."""

    def corner(b: Any, n: Any, at: Any) -> Any:
        axis = tirx.floormod(at, 2)
        half = boxes[b, n, axis + 2] / tirx.const(2, boxes.dtype)
        return boxes[b, n, axis] + tirx.Select(at < 2, -half, half)

    return te.compute(boxes.shape, corner, name="corners")


def _rows(places: te.Tensor, order: te.Tensor) -> te.Tensor:
    """Image, class and box of each place in the order."""
    _, classes, count = order.shape

    def number(row: Any, at: Any) -> Any:
        line, n = tirx.floordiv(places[row], count), tirx.floormod(places[row], count)
        image, kind = tirx.floordiv(line, classes), tirx.floormod(line, classes)
        return tirx.if_then_else(at == 2, order[image, kind, n], tirx.Select(at == 1, kind, image))

    return te.compute((places.shape[0], 3), number, name="selected_boxes")


def _number(value: Any) -> float | None:
    return None if value is None else float(value.value.numpy().item())


def roi_align(node: Node) -> Any:
    """TVM's own converter of regions that it shifts before it scales them, not behind."""
    if node.attributes.get("mode", b"avg") != b"avg":
        raise ScatterError(
            "RoiAlign: mode 'max' is not supported; ONNX and TVM mean different maxima. It "
            "must be 'avg'."
        )
    data, regions, images = node.inputs
    default = b"half_pixel" if node.opset >= 16 else b"output_half_pixel"
    scale = node.attributes.get("spatial_scale", 1.0)
    if node.attributes.get("coordinate_transformation_mode", default) == b"half_pixel":
        more = relax.const(0.5 - 0.5 / scale, regions.ty.dtype)
        regions = node.bb.emit(relax.op.add(regions, more))
    return node.by_stock([data, regions, images])


def unique(node: Node) -> Any:
    """TVM's own converter of flat data, unless an axis is given."""
    data = node.inputs[0]
    if node.attributes.get("axis") is not None or data.ty.ndim == 1:
        return node.by_stock()
    return node.by_stock([node.bb.emit(relax.op.reshape(data, (-1,)))])
