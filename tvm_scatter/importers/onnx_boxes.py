"""ONNX's ``NonMaxSuppression`` and ``RoiAlign``, which TVM's importer reads in a way of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError


class NonMaxSuppression:
    """TVM's own converter with ONNX's defaults, and its rule for boxes at the threshold.

    TVM also suppresses boxes that overlap by just the threshold, and takes thresholds of its own
    where none are given. It marks what it suppresses by a negative score, so that it must see
    positive ones.

    Parameters
    ----------
    stock : object
        TVM's converter.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""
        convert = self.stock.get_converter(opset)

        def with_defaults(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            given = [*inputs, None, None, None]
            boxes, scores, most, overlap, score = given[:5]
            if most is None:
                most = relax.const(np.array(0), "int64")
            above = np.nextafter(np.float32(_number(overlap, 0.0)), np.float32(np.inf))
            # TVM takes a threshold of zero for none, and the least numbers count as zero.
            above = max(above, np.finfo("float32").tiny)
            # No score is left out if there is no threshold.
            least = _number(score, -np.inf)
            if least < 0:
                scores, least = _ranked(bb, scores, least), 0.0
            limits = (relax.const(np.array(each), "float32") for each in (above, least))
            return convert(bb, type(inputs)([boxes, scores, most, *limits]), attributes, params)

        return with_defaults


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


class RoiAlign:
    """TVM's own converter of regions that it shifts before it scales them, not behind.

    Parameters
    ----------
    stock : object
        TVM's converter.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""
        convert = self.stock.get_converter(opset)

        def shifted(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            if attributes.get("mode", b"avg") != b"avg":
                raise ScatterError(
                    "RoiAlign: mode 'max' is not supported; ONNX and TVM mean different maxima. It "
                    "must be 'avg'."
                )
            data, regions, images = inputs
            default = b"half_pixel" if opset >= 16 else b"output_half_pixel"
            scale = attributes.get("spatial_scale", 1.0)
            if attributes.get("coordinate_transformation_mode", default) == b"half_pixel":
                more = relax.const(0.5 - 0.5 / scale, regions.ty.dtype)
                regions = bb.emit(relax.op.add(regions, more))
            return convert(bb, type(inputs)([data, regions, images]), attributes, params)

        return shifted


class Unique:
    """TVM's own converter of flat data, unless an axis is given.

    Parameters
    ----------
    stock : object
        TVM's converter.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""
        convert = self.stock.get_converter(opset)

        def flat(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            if attributes.get("axis") is None and inputs[0].ty.ndim != 1:
                data = bb.emit(relax.op.reshape(inputs[0], (-1,)))
                inputs = type(inputs)([data])
            return convert(bb, inputs, attributes, params)

        return flat
