"""PyTorch's operators that read by index: ``index``, ``index_select``, ``gather`` and their kin.

A read along one axis becomes TVM's ``take``, with a mode that tells which operator it was.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.shapes import is_empty, is_one, no_elements, number_of

from .call import TorchCall
from .compaction import coordinates, true_positions
from .compaction import select as select_by_mask
from .index import is_mask, placed_indices


def index(call: TorchCall) -> Any:
    """``index``, the read that corresponds to ``index_put``."""
    data = call["self"]
    placed = placed_indices(call, data, call["indices"])
    if len(placed) == 1:
        [(axis, tensor)] = placed
        return (select_by_mask if is_mask(tensor) else _take)(call, data, tensor, axis)
    axes: list[int] = []
    indices: list[Any] = []
    for axis, tensor in placed:
        parts = _coordinates(call, tensor) if is_mask(tensor) else [tensor]
        axes += range(axis, axis + len(parts))
        indices += parts
    common = call.broadcast(*indices)
    indices = [_of_one_size(call, each, common) for each in indices]
    return call.emit(read_ops.index(data, indices, axes, operator=call.origin))


def index_select(call: TorchCall) -> Any:
    """``index_select``."""
    data, positions = call["self"], call["index"]
    axis = call.axis(call["dim"], data.ty.ndim)
    if data.ty.ndim == 0:
        return _take(call, call.reshape(data, (1,)), call.reshape(positions, ()), 0)
    return _take(call, data, call.reshape(positions, (number_of(shape_of(positions)),)), axis)


def embedding(call: TorchCall) -> Any:
    """``embedding``."""
    weight, positions = call["weight"], call["indices"]
    shape = shape_of(positions)
    # The index is flattened, because TVM's gradient supports 1-D indices only.
    rows = _take(call, weight, call.reshape(positions, (number_of(shape),)), 0)
    return call.reshape(rows, (*shape, *shape_of(weight)[1:]))


def take(call: TorchCall) -> Any:
    """``take``: positions in the flattened data."""
    data = call["self"]
    return _take(call, call.reshape(data, (number_of(shape_of(data)),)), call["index"], 0)


def gather(call: TorchCall) -> Any:
    """``gather``."""
    data, positions = call["self"], call["index"]
    shape = shape_of(positions)
    axis = call.axis(call["dim"], data.ty.ndim)
    if is_empty(positions):
        return call.emit(no_elements(relax.TensorType(list(shape), data.ty.dtype)))
    if max(data.ty.ndim, 1) != max(positions.ty.ndim, 1):
        raise call.error(
            f"index of shape {text(shape)} must have the rank of data of shape "
            f"{text(shape_of(data))}."
        )
    # A 0-d tensor counts as one with a single axis of size 1.
    data = call.reshape(data, shape_of(data) or (1,))
    positions = call.reshape(positions, shape or (1,))
    read = call.emit(read_ops.gather_elements(data, positions, axis, operator=call.origin))
    return call.reshape(read, shape)


def select(call: TorchCall) -> Any:
    """``select``: one position of an axis, given by a number or a 0-d tensor."""
    data, position = call["self"], call["index"]
    axis = call.axis(call["dim"], data.ty.ndim)
    extent = shape_of(data)[axis]
    if is_one(extent) and isinstance(position, int) and position in (0, -1):
        # The only position.
        return call.reshape(data, (*shape_of(data)[:axis], *shape_of(data)[axis + 1 :]))
    if isinstance(position, int) and isinstance(extent, int):
        position = position + extent if position < 0 else position
    if isinstance(position, int):
        return _take(call, data, relax.const(position, "int64"), axis)

    def tensor(position: Any) -> te.Tensor:
        return te.compute((), lambda: position, name="position")

    return _take(call, data, call.compute(tensor, position, name="position"), axis)


def _take(call: TorchCall, data: Any, positions: Any, axis: int) -> Any:
    # PyTorch decomposes other operators into index, each with its own rule for negative indices.
    operator = call.origin if call.name == "index" else call.name
    return call.emit(relax.op.take(data, positions, axis, mode=operator))


def _of_one_size(call: TorchCall, index: Any, common: Any) -> Any:
    """The index, after a check that its sizes broadcast to ``common``."""
    shape = shape_of(index)
    sizes = common[len(common) - len(shape) :]
    expected = [a if is_one(a) else b for a, b in zip(shape, sizes, strict=True)]
    return call.expect_shape("index", index, expected)


def _coordinates(call: TorchCall, mask: Any) -> list[Any]:
    """The coordinates of a mask's true positions: a vector for each axis."""
    return coordinates(call, true_positions(call, mask), shape_of(mask))
