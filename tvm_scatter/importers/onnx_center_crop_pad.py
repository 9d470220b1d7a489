"""ONNX's ``CenterCropPad``: the middle of a tensor, with zeros around it where it is too small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError

from .onnx_sizes import sizes_in
from .shapes import shape_of


def center_crop_pad(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``CenterCropPad``: along some axes, to sizes that may be known at run time only."""
    data = inputs[0]
    rank = len(shape_of(data))
    axes = [int(axis) for axis in attributes.get("axes", range(rank))]
    if not all(-rank <= axis < rank for axis in axes):
        raise ScatterError(
            f"{operator}: axes {axes} are out of range for data of rank {rank}; they must be in "
            f"[{-rank}, {rank - 1}]."
        )
    sizes = sizes_in(bb, operator, inputs[1], len(axes))
    shape = list(shape_of(data))
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return bb.emit_te(_centered, data, relax.ShapeExpr(shape), primfunc_name_hint="centered")


def _centered(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    # Both are rounded down: a part begins earlier, and more zeros are behind than in front.
    first = [
        tirx.Select(old >= new, tirx.floordiv(old - new, 2), -tirx.floordiv(new - old, 2))
        for old, new in zip(data.shape, shape, strict=True)
    ]

    def element(*at: Any) -> Any:
        places = [i + begin for i, begin in zip(at, first, strict=True)]
        inside = [
            each
            for place, size in zip(places, data.shape, strict=True)
            for each in (place >= 0, place < size)
        ]
        zero = tirx.const(0, data.dtype)
        return tirx.if_then_else(tirx.all(*inside), data(*places), zero) if at else data()

    return te.compute(tuple(shape), element, name="centered")
