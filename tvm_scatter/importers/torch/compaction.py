"""Masks that become as many positions as they have true entries, and what PyTorch reads by them."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops import compaction
from tvm_scatter.ops.shapes import is_empty, no_elements, number_of

from .call import TorchCall
from .sizes import expected_size


def true_positions(call: TorchCall, mask: Any, axis: int = 0) -> Any:
    """The positions in the flattened mask at which it is true, ascending.

    Calls with one mask share the result, so that TVM knows that what they read is of one length.

    Parameters
    ----------
    call : TorchCall
        The operator.
    mask : relax.Expr
        A tensor of any shape. Entries that are not zero are true, among them NaN.
    axis : int
        The axis of the operator's result that has a place for each position.

    Returns
    -------
    positions : relax.Expr
        int64 of shape (count,). Its only size, ``shape_of(positions)[0]``, is the number of true
        entries, which the run time reads back once.
    """
    known: dict[Any, Any] = call.importer.__dict__.setdefault("_tvm_scatter_true_positions", {})
    if mask not in known:
        known[mask] = _listed(call, mask, axis)
    return known[mask]


def nonzero(call: TorchCall) -> Any:
    """``nonzero``: a row of coordinates for each entry that is not zero."""
    tensor = call["self"]
    positions = true_positions(call, tensor)
    [count], shape = shape_of(positions), shape_of(tensor)
    if not shape or is_empty(positions):
        return call.emit(no_elements(relax.TensorType([count, len(shape)], "int64")))
    columns = coordinates(call, positions, shape)
    columns = [call.reshape(column, (count, 1)) for column in columns]
    return columns[0] if len(columns) == 1 else call.emit(relax.op.concat(columns, axis=1))


def masked_select(call: TorchCall) -> Any:
    """``masked_select``: the entries of the data at which the mask is true."""
    data, mask = call["self"], call["mask"]
    if str(mask.ty.dtype) != "bool":
        raise call.error(f"mask of type {mask.ty.dtype} must be of type bool.")
    shape = call.broadcast(data, mask)
    data = call.broadcast_to("self", data, shape)
    mask = call.broadcast_to("mask", mask, shape)
    return select(call, data, mask, 0)


def select(call: TorchCall, data: Any, mask: Any, axis: int) -> Any:
    """``data[:, ..., mask]``: the mask covers as many axes as it has, from ``axis`` on."""
    shape = shape_of(data)
    before, behind = shape[:axis], shape[axis + mask.ty.ndim :]
    positions = true_positions(call, mask, axis)
    if is_empty(data) or is_empty(positions):
        chosen = [*before, *shape_of(positions), *behind]
        return call.emit(no_elements(relax.TensorType(chosen, data.ty.dtype)))
    flat = call.reshape(data, (*before, number_of(shape_of(mask)), *behind))
    # Positions are in bounds, so nothing need be checked: this mode defines other indices, too.
    return call.emit(relax.op.take(flat, positions, axis, mode="clip"))


def coordinates(call: TorchCall, positions: Any, shape: tuple[Any, ...]) -> list[Any]:
    """For each axis of a shape, the coordinates of flat positions in it.

    For a flat position behind the last one, the coordinate along axis 0 is out of bounds.
    """
    return [_coordinate(call, positions, shape, axis) for axis in range(len(shape))]


def _coordinate(call: TorchCall, positions: Any, shape: tuple[Any, ...], axis: int) -> Any:
    def coordinate(positions: te.Tensor, stride: Any, extent: Any) -> te.Tensor:
        def at(i: Any) -> Any:
            part = tirx.floordiv(positions[i], stride)
            return tirx.floormod(part, extent) if axis else part

        return te.compute(positions.shape, at, name="coordinate")

    stride = number_of(shape[axis + 1 :])
    return call.compute(coordinate, positions, stride, shape[axis], name="coordinate")


def _listed(call: TorchCall, mask: Any, axis: int) -> Any:
    if is_empty(mask):
        return call.emit(no_elements(relax.TensorType([0], "int64")))
    if str(mask.ty.dtype) != "bool":
        mask = call.compute(compaction.is_true, mask, name="is_true")
    found = call.emit(compaction.true_positions(mask, operator=call.origin))
    size = expected_size(call, axis)
    return call.bb.match_cast(found, relax.TensorType([size], "int64"))
