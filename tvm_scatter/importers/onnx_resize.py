"""ONNX's ``Resize`` where TVM's importer fails or is silently wrong.

TVM computes the scale from the sizes, although these are rounded, and knows neither smoothing nor
axes of choice. Here each axis is resized for itself: a pixel is a weighted sum of some others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops.shapes import same_size, static_shape

from .onnx_resize_weights import Part, Sampling, outside, taps
from .onnx_stock import Node


class _Axis(NamedTuple):
    """An axis, its new size, and the factor between them, which the size is rounded from.

    ``part`` is what ``tf_crop_and_resize`` resizes of the axis.
    """

    axis: int
    size: Any
    new: Any
    scale: Any
    part: Part


def resize(node: Node) -> Any:
    """TVM's own converter, where it is right."""
    given = [node.constant(at) for at in range(len(node.inputs))]
    if node.opset < 11 or static_shape(given[0]) is None:
        return node.by_stock()
    sampling = Sampling.of(node.attributes)
    axes = _axes(given, node.attributes)
    if _is_left_to_TVM(given, node.attributes, sampling, axes):
        return node.by_stock()
    resized = _resized(node.bb, given[0], sampling, axes)
    return _with_outside(node, resized, sampling, axes)


def _axes(given: Sequence[Any], attributes: dict[str, Any]) -> list[_Axis]:
    shape = shape_of(given[0])
    places = [int(axis) % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    scales, sizes = (_numbers(given[at]) if len(given) > at else None for at in (2, 3))
    old = [shape[axis] for axis in places]
    if not (scales or sizes):
        raise ScatterError(
            "Resize: scales or sizes that are known at run time only are not supported; they must "
            "be constant, or sizes of other tensors."
        )
    if sizes:
        policy = attributes.get("keep_aspect_ratio_policy", b"stretch").decode()
        if policy == "stretch":
            scales = [_ratio(*pair) for pair in zip(sizes, old, strict=True)]
        else:
            scale = (min if policy == "not_larger" else max)(map(_ratio, sizes, old))
            scales, sizes = [scale] * len(old), [int(scale * size + 0.5) for size in old]
    else:
        sizes = [
            size if scale == 1 else int(np.floor(size * scale)) if isinstance(size, int) else None
            for size, scale in zip(old, scales or (), strict=True)
        ]
    parts = _parts(given, attributes, len(places))
    return [_Axis(*each) for each in zip(places, old, sizes, scales or (), parts, strict=True)]


def _parts(given: Sequence[Any], attributes: dict[str, Any], count: int) -> list[Part]:
    """Where the part of each axis begins and ends that is resized."""
    if attributes.get("coordinate_transformation_mode") != b"tf_crop_and_resize":
        return [(0.0, 1.0)] * count
    numbers = _numbers(given[1])
    if numbers is None or len(numbers) != 2 * count:
        raise ScatterError(
            "Resize: roi of tf_crop_and_resize must be constant, with a begin and an end for each "
            f"of {count} axes."
        )
    return list(zip(numbers[:count], numbers[count:], strict=True))


def _numbers(value: Any) -> list[Any] | None:
    """The entries of a constant or a shape, if there are any."""
    if isinstance(value, tvm.ir.GenericConst):
        return list(value.value.numpy().tolist())
    if isinstance(value, relax.ShapeExpr):
        return [int(size) if isinstance(size, tirx.IntImm) else size for size in value]
    return None


def _ratio(new: Any, old: Any) -> Any:
    """The factor between two sizes, or None if only the run time knows it."""
    if isinstance(new, int) and isinstance(old, int):
        return new / old
    return 1 if same_size(new, old) else None


def _is_left_to_TVM(
    given: Sequence[Any], attributes: dict[str, Any], sampling: Sampling, axes: Sequence[_Axis]
) -> bool:
    newer = any(attributes.get(name) for name in ("axes", "antialias", "keep_aspect_ratio_policy"))
    if newer or sampling.coordinates in ("half_pixel_symmetric", "tf_crop_and_resize"):
        return False
    if not all(axis.scale == 1 or axis.axis > 1 for axis in axes):
        return len(shape_of(given[0])) < 3
    if len(given) > 3 and isinstance(given[3], relax.ShapeExpr):
        # TVM wants numbers, also for the batch.
        return all(isinstance(size, tirx.IntImm) for size in given[3])
    if sampling.coordinates == "align_corners":
        # As in onnxruntime, the rounded sizes count. TVM divides by one less.
        return not any(isinstance(axis.new, int) and axis.new == 1 for axis in axes[2:])
    return all(map(_is_exact, axes))


def _is_exact(axis: _Axis) -> bool:
    """Whether the new size is not rounded."""
    if not isinstance(axis.new, int) or not isinstance(axis.size, int):
        return axis.scale is None or float(axis.scale).is_integer()
    return abs(axis.size * axis.scale - axis.new) < 1e-6


def _resized(bb: Any, data: Any, sampling: Sampling, axes: Sequence[_Axis]) -> Any:
    dtype = str(data.ty.dtype)
    if sampling.mode != "nearest":
        if "float" not in dtype:
            raise ScatterError(
                f"Resize: mode {sampling.mode!r} of {dtype} is not supported; it must be a type of "
                "floating-point numbers."
            )
        data = bb.emit(relax.op.astype(data, "float64" if dtype == "float64" else "float32"))
    for axis, size, new, scale, part in axes:
        if scale == 1 and part == (0, 1):
            continue
        if not isinstance(size, int) or not isinstance(new, int):
            raise ScatterError(
                f"Resize: axis {axis} of shape {text(shape_of(data))} must have a size that is "
                "known at compile time, and so must the new size."
            )
        places, weights = taps(sampling, size, new, scale, part)
        at = relax.const(places[:, 0] if weights is None else places, "int64")
        if weights is None:
            data = bb.emit(relax.op.take(data, at, axis))
        else:
            kept = relax.const(weights, str(data.ty.dtype))
            data = bb.emit_te(_weighted, data, at, kept, axis, primfunc_name_hint="resize")
    return relax.op.astype(data, dtype)


def _with_outside(node: Node, resized: Any, sampling: Sampling, axes: Sequence[_Axis]) -> Any:
    """The pixels that are resized, and a number in the place of those that lie in none."""
    rank, dtype = len(shape_of(node.inputs[0])), str(node.inputs[0].ty.dtype)
    missing = np.zeros((1,) * rank, "bool")
    for axis, size, new, _, part in axes:
        if sampling.coordinates == "tf_crop_and_resize" and part != (0, 1):
            shape = [-1 if at == axis else 1 for at in range(rank)]
            missing = missing | outside(sampling, size, new, part).reshape(shape)
    if not missing.any():
        return resized
    number = relax.const(node.attributes.get("extrapolation_value", 0.0), dtype)
    return relax.op.where(relax.const(missing), number, node.bb.emit(resized))


def _weighted(data: te.Tensor, places: te.Tensor, weights: te.Tensor, axis: int) -> te.Tensor:
    tap = te.reduce_axis((0, places.shape[1]), "tap")
    shape = (*data.shape[:axis], places.shape[0], *data.shape[axis + 1 :])

    def pixel(*at: Any) -> Any:
        here = at[axis]
        value = data(*at[:axis], places(here, tap), *at[axis + 1 :])
        return te.sum(value * weights(here, tap), axis=tap)

    return te.compute(shape, pixel, name="resize")
