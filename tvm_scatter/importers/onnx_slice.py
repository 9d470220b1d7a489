"""ONNX's ``Slice`` of axes of symbolic size, or by sizes.

TVM computes the length of a reversed slice, as torch.onnx writes ``flip``, from its end, the least
integer, and overflows. It takes a slice up to a symbolic size for as long as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer, ConstIntBound

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import static_shape

from .onnx_read_slice import slice_of_axis, slice_of_tensors
from .onnx_slice_numbers import plain
from .onnx_stock import Node

#: Ends beyond it are no places.
_FAR = 2**31 - 1
_SLICE = tvm.ir.Op.get("relax.strided_slice")


def slice_(node: Node) -> Any:
    """TVM's own converter, but for places that it reads otherwise than ONNX."""
    bb, data, given = node.bb, node.inputs[0], _inputs(node)
    if any(map(_is_computed, given[1:])):
        return slice_of_tensors(bb, given)
    slices = _slices(given)
    if slices is None:
        return _with_sizes(bb, _within_bounds(bb.normalize(node.by_stock()), data))
    for start, end, step, axis in [each for each in slices if _falls(each, data)]:
        if step == -1 and (start == -1 or start >= _FAR) and end <= -_FAR:
            data = bb.emit(relax.op.flip(data, axis))
        else:
            data = slice_of_axis(bb, data, axis, start, end, step)
    rest = [each for each in slices if not _falls(each, data)]
    if not rest:
        return data
    shape = shape_of(data)
    numbers = [(*plain(*each[:3], shape[each[3]]), each[3]) for each in rest]
    starts, ends, steps, axes = (
        relax.const(list(each), "int64") for each in zip(*numbers, strict=True)
    )
    inputs = type(node.inputs)([data, starts, ends, axes, steps])
    result = bb.normalize(replace(node, inputs=inputs).by_stock())
    return _with_sizes(bb, _within_bounds(result, data))


def _falls(one: tuple[int, int, int, int], data: Any) -> bool:
    """Whether an axis of symbolic size is read backwards."""
    return one[2] < 0 and not isinstance(shape_of(data)[one[3]], int)


def _inputs(node: Node) -> list[Any]:
    """Data, starts, ends, axes and steps, of which weights may be kept as parameters."""
    return [node.inputs[0], *map(node.constant, range(1, 5))]


def _is_computed(value: Any) -> bool:
    is_tensor = isinstance(getattr(value, "ty", None), relax.TensorType)
    return is_tensor and not isinstance(value, tvm.ir.GenericConst)


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


def _slices(inputs: Any) -> list[tuple[int, int, int, int]] | None:
    """Start, end, step and axis of each slice of a tensor, if they are constant and right."""
    given = [x for x in inputs[1:] if x is not None]
    constant = all(isinstance(x, tvm.ir.GenericConst) and x.ty.ndim == 1 for x in given)
    if len(given) < 2 or not constant or static_shape(inputs[0]) is None:
        return None
    rank, count = len(shape_of(inputs[0])), int(shape_of(inputs[1])[0])
    defaults: list[Any] = [[], [], range(count), [1] * count]
    starts, ends, axes, steps = (
        list(default if x is None else x.value.numpy().tolist())
        for x, default in zip(inputs[1:], defaults, strict=True)
    )
    fit = len(ends) == len(axes) == len(steps) == count and 0 not in steps
    if not fit or not all(-rank <= axis < rank for axis in axes):
        return None
    places = [axis % rank for axis in axes]
    slices = list(zip(starts, ends, steps, places, strict=True))
    return slices if len(set(places)) == count else None
