"""ONNX's ``NonMaxSuppression`` and ``RoiAlign``, which TVM's importer reads in a way of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError

from .onnx_stock import Node


def non_max_suppression(node: Node) -> Any:
    """TVM's own converter with ONNX's defaults, and its rule for boxes at the threshold.

    TVM also suppresses boxes that overlap by just the threshold, and takes thresholds of its own
    where none are given. It marks what it suppresses by a negative score, so that it must see
    positive ones.
    """
    given = [*node.inputs, None, None, None]
    boxes, scores, most, overlap, score = given[:5]
    if most is None:
        most = relax.const(np.array(0), "int64")
    above = np.nextafter(np.float32(_number(overlap, 0.0)), np.float32(np.inf))
    # TVM takes a threshold of zero for none, and the least numbers count as zero.
    above = max(above, np.finfo("float32").tiny)
    # No score is left out if there is no threshold.
    least = _number(score, -np.inf)
    if least < 0:
        scores, least = _ranked(node.bb, scores, least), 0.0
    limits = (relax.const(np.array(each), "float32") for each in (above, least))
    return node.by_stock([boxes, scores, most, *limits])


def _ranked(bb: Any, scores: Any, least: float) -> Any:
    """Positive scores in the same order; 0 for those that a threshold leaves out."""
    order = bb.emit(relax.op.argsort(scores, -1, True, "int64"))
    places = bb.emit(relax.op.argsort(order, -1, False, "int64"))

    def rank(scores: te.Tensor, places: te.Tensor) -> te.Tensor:
        def score(*at: Any) -> Any:
            behind = scores.shape[-1] - places(*at)
            limit = tirx.min_value("float32") if least == -np.inf else tirx.const(least, "float32")
            kept = scores(*at) >= limit if least == -np.inf else scores(*at) > limit
            return tirx.Select(kept, behind.astype("float32"), tirx.const(0.0, "float32"))

        return te.compute(scores.shape, score, name="rank")

    return bb.emit_te(rank, scores, places, primfunc_name_hint="rank")


def _number(value: Any, default: float) -> float:
    if not isinstance(value, tvm.ir.GenericConst):
        return default
    return float(value.value.numpy().item())


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
