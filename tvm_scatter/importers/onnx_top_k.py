"""ONNX's ``TopK`` of a number that is a size, as torch.onnx writes a sort along an open axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import same_size

from .onnx_sizes import sizes_in
from .shapes import shape_of, text
from .sortable import restored, sortable


def top_k(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``TopK`` of any type."""
    data, dtype = inputs[0], str(inputs[0].ty.dtype)
    numbers = sortable(bb, data)
    found = _top_k(bb, operator, [numbers, *inputs[1:]], attributes)
    if numbers is data:
        return found
    values, places = (bb.emit(relax.TupleGetItem(bb.normalize(found), at)) for at in range(2))
    return relax.Tuple([restored(bb, values, dtype), places])


def _top_k(bb: Any, operator: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """``TopK``; where the number may be any, all are sorted, and then the first ones taken."""
    data = inputs[0]
    shape, (count,) = list(shape_of(data)), sizes_in(bb, operator, inputs[1], 1)
    rank, axis = len(shape), int(attributes.get("axis", -1))
    if not -rank <= axis < rank:
        raise ScatterError(
            f"{operator}: axis {axis} is out of range for data of rank {rank}; it must be in "
            f"[{-rank}, {rank - 1}]."
        )
    axis %= rank
    size = shape[axis]
    if isinstance(count, int) and isinstance(size, int) and not 0 <= count <= size:
        raise ScatterError(
            f"{operator}: k {count} does not fit axis {axis} of data of shape {text(shape)}; it "
            f"must be in [0, {size}]."
        )
    largest = bool(attributes.get("largest", 1))
    if isinstance(count, int) and count > 0:
        if not isinstance(size, int):
            data = _at_least(bb, operator, data, size, count)
        return relax.op.topk(data, count, axis, "both", largest, "int64")
    both = bb.emit(relax.op.topk(data, -1, axis, "both", largest, "int64"))
    results = [bb.emit(relax.TupleGetItem(both, at)) for at in range(2)]
    if same_size(count, size):
        return relax.Tuple(results)
    shape[axis] = count
    firsts = []
    for each in results:
        whole = _at_least(bb, operator, each, size, count)
        part = bb.emit(relax.op.strided_slice(whole, [axis], [0], [count], assume_inbound=True))
        firsts.append(bb.match_cast(part, relax.TensorType(shape, each.ty.dtype)))
    return relax.Tuple(firsts)


def _at_least(bb: Any, operator: str, tensor: Any, size: Any, count: Any) -> Any:
    """The tensor, after a check that an axis has as many elements as are wanted."""
    fewer = tirx.min(size, tirx.const(count, "int64") if isinstance(count, int) else count)
    return bb.emit(expect_sizes(tensor, [fewer], [count], what="the k largest", operator=operator))


def is_left_to_TVM(inputs: Sequence[Any], attributes: dict[str, Any]) -> bool:
    """Whether TVM's importer does it: the number is an attribute in the oldest opset."""
    return len(inputs) < 2
