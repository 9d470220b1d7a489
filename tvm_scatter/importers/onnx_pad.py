"""ONNX's ``Pad`` by numbers, or with a number, that the run time knows.

TVM's importer wants both to be constant.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.problem.sizes import as_expression

from .onnx_sizes import from_the_front, sizes_in
from .onnx_stock import Node
from .padded import padded

#: More than any memory has elements, and sums of three of them do not overflow.
_FAR = 2**60


def pad(node: Node) -> Any:
    """TVM's own converter, but where a number is put around a tensor at run time."""
    pads, value, axes = (node.constant(at) for at in (1, 2, 3))
    if all(_is_known(each) for each in (pads, value)):
        return node.by_stock()
    mode = node.attributes.get("mode", b"constant").decode()
    if mode != "constant" or not _is_known(axes):
        what = f"in mode {mode!r} pads" if mode != "constant" else "axes"
        raise ScatterError(
            f"Pad: {what} that are known at run time only are not supported; they must be constant."
        )
    bb, data = node.bb, node.bb.normalize(node.inputs[0])
    shape, places = shape_of(data), _axes(axes, data.ty.ndim)
    numbers = _numbers(bb, pads, 2 * len(places))
    sizes = list(map(as_expression, shape))
    befores = [tirx.const(0, "int64")] * len(shape)
    for place, before, after in zip(
        places, numbers[: len(places)], numbers[len(places) :], strict=True
    ):
        sizes[place], befores[place] = sizes[place] + before + after, befores[place] + before
    dtype = str(data.ty.dtype)
    value = relax.const(0, dtype) if value is None else bb.emit(relax.op.reshape(value, ()))
    return bb.emit_te(_padded, data, sizes, befores, value, primfunc_name_hint="pad")


def _is_known(value: Any) -> bool:
    if isinstance(value, relax.ShapeExpr):
        return all(isinstance(size, tirx.IntImm) for size in value)
    return value is None or isinstance(value, tvm.ir.GenericConst)


def _axes(axes: Any, rank: int) -> list[int]:
    numbers = list(range(rank)) if axes is None else sizes_in(None, "Pad", axes)
    return from_the_front("Pad", numbers, rank)


def _numbers(bb: Any, pads: Any, count: int) -> list[Any]:
    if not isinstance(pads, relax.ShapeExpr | tvm.ir.GenericConst):
        least, most = (relax.const(number, "int64") for number in (-_FAR, _FAR))
        pads = bb.emit(relax.op.minimum(relax.op.maximum(pads, least), most))
    return sizes_in(bb, "Pad", pads, count)


def _padded(data: te.Tensor, sizes: Any, befores: Any, value: te.Tensor) -> te.Tensor:
    return padded(data, sizes, befores, value())
