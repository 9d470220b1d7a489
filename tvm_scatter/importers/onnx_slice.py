"""ONNX's ``Slice`` of axes of symbolic size, or by sizes.

TVM computes the length of a reversed slice, as torch.onnx writes ``flip``, from its end, the least
integer, and overflows. It takes a slice up to a symbolic size for as long as that. Of a slice whose
places are computed it knows no more than the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer, ConstIntBound

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import static_shape

from .onnx_stock import Node

#: Ends beyond it are no places.
_FAR = 2**31 - 1
_SLICE = tvm.ir.Op.get("relax.strided_slice")


def slice_(node: Node) -> Any:
    """TVM's own converter, but for axes that are reversed."""
    bb, data = node.bb, node.inputs[0]
    slices = _slices(node.inputs)
    places = [] if slices is None else _reversed(data, slices)
    if slices is None or not places:
        return _with_sizes(bb, _within_bounds(bb.normalize(node.by_stock()), data))
    data = bb.emit(relax.op.flip(data, int(slices[2][places[0]])))
    rest = [np.delete(each, places[0]) for each in slices]
    if not rest[0].size:
        return data
    inputs = [data, *(relax.const(each, "int64") for each in rest)]
    return slice_(replace(node, inputs=type(node.inputs)(inputs)))


def _within_bounds(result: Any, data: Any) -> Any:
    """A slice that ends where the tensor does, wherever a symbolic size wants it to end."""
    if not isinstance(result, relax.Call) or result.op != _SLICE:
        return result
    axes, starts, ends = result.args[1], result.args[2], result.args[3]
    if not result.attrs.assume_inbound or _fits(axes, starts, ends, shape_of(data)):
        return result
    return relax.op.strided_slice(*result.args, assume_inbound=False)


def _fits(axes: Any, starts: Any, ends: Any, shape: Sequence[Any]) -> bool:
    """Whether all places of a slice are certainly in the tensor."""
    analyzer = Analyzer()
    for size in shape:
        if isinstance(size, tirx.Var):
            analyzer.update(size, ConstIntBound(0, ConstIntBound.POS_INF))
    return all(
        analyzer.can_prove(start >= 0)
        and analyzer.can_prove(start <= end)
        and analyzer.can_prove(end <= shape[int(axis)])
        for axis, start, end in zip(axes, starts, ends, strict=True)
    )


def _with_sizes(bb: Any, result: Any) -> Any:
    """The slice with sizes of which later operators know that they are equal to themselves."""
    if not isinstance(result.ty, relax.TensorType) or static_shape(result) is not None:
        return result
    sizes = [tirx.Var(f"sliced{axis}", "int64") for axis in range(result.ty.ndim)]
    return bb.match_cast(bb.emit(result), relax.TensorType(sizes, result.ty.dtype))


def _slices(inputs: Any) -> list[Any] | None:
    """Starts, ends, axes and steps of a tensor, if they are constant."""
    given = [x for x in inputs[1:5] if x is not None]
    constant = len(given) >= 2 and all(isinstance(x, tvm.ir.GenericConst) for x in given)
    if not constant or static_shape(inputs[0]) is None:
        return None
    starts, ends = (x.value.numpy() for x in given[:2])
    axes, steps = (inputs[at].value.numpy() if inputs[at] is not None else None for at in (3, 4))
    axes = np.arange(len(starts)) if axes is None else axes % len(shape_of(inputs[0]))
    return [starts, ends, axes, np.ones_like(starts) if steps is None else steps]


def _reversed(data: Any, slices: list[Any]) -> list[int]:
    """The places of slices that reverse an axis of symbolic size."""
    shape = shape_of(data)
    return [
        place
        for place, (start, end, axis, step) in enumerate(zip(*slices, strict=True))
        if step == -1
        and (start == -1 or start >= _FAR)
        and end <= -_FAR
        and not isinstance(shape[axis], int)
    ]
