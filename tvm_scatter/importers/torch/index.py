"""Advanced indexing: ``index_put``, and how a list of indices addresses the data's axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_empty, is_one

from .call import TorchCall
from .mask import choose, every_coordinate, masked_put, spread_values, true_coordinates

# Operators that PyTorch decomposes into index_put, and for which a negative index is out of bounds.
_WITHOUT_NEGATIVE = ("index_add", "index_copy")


def index_put(call: TorchCall) -> Any:
    """``index_put``, with or without ``accumulate``.

    The list of indices may hold ``None`` and one mask, and may be shorter than the axes.
    """
    data, values, add = call["self"], call["values"], bool(call["accumulate"])
    call.expect_dtype("values", values, str(data.ty.dtype))
    placed = placed_indices(call, data, call["indices"])
    masks = [(axis, index) for axis, index in placed if is_mask(index)]
    if not masks:
        return _put(call, data, placed, values, add)
    if len(masks) > 1:
        raise call.error(
            f"{len(masks)} boolean masks in one index are not supported; combine them into one."
        )
    if is_empty(data):
        return data
    axis, mask = masks[0]
    if len(placed) == 1:
        selected = (*shape_of(data)[:axis], None, *shape_of(data)[axis + mask.ty.ndim :])
        values = _expect_broadcast(call, values, selected)
        return masked_put(call, data, mask, axis, values, add)
    return _put_with_mask(call, data, placed, values, add)


def placed_indices(call: TorchCall, data: Any, indices: Sequence[Any]) -> list[tuple[int, Any]]:
    """Each index tensor with the first axis that it addresses. ``None`` skips an axis."""
    rank, shape = data.ty.ndim, shape_of(data)
    placed, axis = [], 0
    for tensor in indices:
        width = 1
        if tensor is not None:
            if is_mask(tensor):
                tensor = call.cast(tensor, "bool")
                width = tensor.ty.ndim
                extents = shape[axis : axis + width]
                if (
                    width == 0
                    or len(extents) < width
                    or any(map(differ, shape_of(tensor), extents))
                ):
                    raise call.error(
                        f"a mask of shape {text(shape_of(tensor))} does not fit data of shape "
                        f"{text(shape)} at axis {axis}."
                    )
                tensor = call.expect_shape("mask", tensor, extents)
            elif str(tensor.ty.dtype) not in ("int32", "int64"):
                raise call.error(
                    f"an index of type {tensor.ty.dtype} is not supported; it must be int32, "
                    "int64, bool or uint8."
                )
            placed.append((axis, tensor))
        axis += width
    if axis > rank:
        raise call.error(f"too many indices ({axis}) for data of shape {text(shape)}.")
    if not placed:
        raise call.error("at least one index must be a tensor.")
    return placed


def is_mask(tensor: Any) -> bool:
    """Whether an index is a mask: PyTorch takes ``uint8`` for ``bool``."""
    return str(tensor.ty.dtype) in ("bool", "uint8")


def _put(
    call: TorchCall, data: Any, placed: Sequence[tuple[int, Any]], values: Any, add: bool
) -> Any:
    tensors = [tensor for _, tensor in placed]
    if call.origin == "index_add":
        # PyTorch leaves an index that is a number as it is. It is that of one row.
        tensors = [call.reshape(each, (1,)) if each.ty.ndim == 0 else each for each in tensors]
    return call.emit(
        ops.index_put(
            data,
            tensors,
            values,
            [axis for axis, _ in placed],
            "add" if add else "update",
            wrap_negative=call.origin not in _WITHOUT_NEGATIVE,
            operator=call.origin,
        )
    )


def _put_with_mask(
    call: TorchCall, data: Any, placed: Sequence[tuple[int, Any]], values: Any, add: bool
) -> Any:
    """A mask beside integer indices, which are paired with the true positions of the mask."""
    beside = [
        shape_of(tensor)[-1]
        for _, tensor in placed
        if not is_mask(tensor) and tensor.ty.ndim and not is_one(shape_of(tensor)[-1])
    ]
    first, mask = next((axis, tensor) for axis, tensor in placed if is_mask(tensor))
    if beside:
        # The mask becomes as many coordinates as the other indices have entries. A single true
        # position is repeated.
        coordinates = true_coordinates(call, mask, beside[0])
        return _put(call, data, _instead_of_mask(placed, coordinates), values, add)
    # All positions of the mask are written. Those without a value get the data's value again.
    every = _instead_of_mask(placed, every_coordinate(call, mask))
    axes = [axis for axis, _ in every]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    # The number of axes behind the axis of the values that is paired with the true positions.
    behind = data.ty.ndim - len(axes) - (axes[0] if adjacent else 0)
    pairing = values.ty.ndim - 1 - behind
    written_at = mask
    if pairing >= 0 and not is_one(shape_of(values)[pairing]):
        values, written_at = spread_values(call, mask, values, pairing)
    written = _put(call, data, every, values, add)
    return choose(call, written_at, first, written, data)


def _instead_of_mask(
    placed: Sequence[tuple[int, Any]], coordinates: Sequence[Any]
) -> list[tuple[int, Any]]:
    """The indices, with the mask replaced by the given coordinates, one for each of its axes."""
    return [
        each
        for axis, tensor in placed
        for each in (
            [(axis + i, coordinate) for i, coordinate in enumerate(coordinates)]
            if is_mask(tensor)
            else [(axis, tensor)]
        )
    ]


def _expect_broadcast(call: TorchCall, values: Any, selected: Sequence[Any]) -> Any:
    """Check that values broadcast to the selected shape, in which ``None`` is any length."""
    shape = shape_of(values)
    aligned = selected[len(selected) - len(shape) :] if len(shape) <= len(selected) else None
    if aligned is None or any(
        not is_one(dim) and expected is not None and differ(dim, expected)
        for dim, expected in zip(shape, aligned, strict=True)
    ):
        wanted = ["number of true positions" if dim is None else dim for dim in selected]
        raise call.error(
            f"values of shape {text(shape)} do not broadcast to {text(wanted)}, the shape that the "
            "mask selects."
        )
    expected = [
        dim if is_one(dim) or wanted is None else wanted
        for dim, wanted in zip(shape, aligned, strict=True)
    ]
    return call.expect_shape("values", values, expected)
