"""Advanced indexing: ``index_put``, and the ``index`` that ``x[i] += v`` reads with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_one

from .call import (
    TorchCall,
    differ,
    is_empty,
    number_of,
    shape_of,
    text,
)
from .mask import choose, masked_put, ranks, spread

# What the model called where PyTorch decomposed it, if negative indices are out of bounds there.
_WITHOUT_NEGATIVE = ("index_add", "index_copy")


def index_put(call: TorchCall) -> Any:
    """``index_put``: None anywhere, masks, fewer index tensors than axes, accumulate."""
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
        _expect_broadcast(call, values, selected)
        return masked_put(call, data, mask, axis, values, add)
    return _put_with_mask(call, data, placed, values, add)


def placed_indices(call: TorchCall, data: Any, indices: Sequence[Any]) -> list[tuple[int, Any]]:
    """Each index with the first axis that it addresses; None and full slices take one axis."""
    rank, shape = data.ty.ndim, shape_of(data)
    placed, axis = [], 0
    for tensor in indices:
        width = 1
        if tensor is not None:
            if is_mask(tensor):
                if str(tensor.ty.dtype) == "uint8":
                    tensor = call.emit(relax.op.astype(tensor, "bool"))
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
    return str(tensor.ty.dtype) in ("bool", "uint8")


def _put(
    call: TorchCall, data: Any, placed: Sequence[tuple[int, Any]], values: Any, add: bool
) -> Any:
    return call.emit(
        ops.index_put(
            data,
            [tensor for _, tensor in placed],
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
    """A mask beside integer indices, which pair up with its true positions.

    Every position of the mask is written, and the false ones are put back from the data.
    """
    first, mask = next((axis, tensor) for axis, tensor in placed if is_mask(tensor))
    rank_of = ranks(call, mask)
    size = shape_of(rank_of)[0]
    spread_out: list[tuple[int, Any]] = []
    for axis, tensor in placed:
        if is_mask(tensor):
            parts = _coordinates(call, tensor, size)
            spread_out += [(axis + i, part) for i, part in enumerate(parts)]
        elif tensor.ty.ndim == 0 or is_one(shape_of(tensor)[-1]):
            spread_out.append((axis, tensor))
        else:
            spread_out.append((axis, spread(call, tensor, rank_of, tensor.ty.ndim - 1)))
    axes = [axis for axis, _ in spread_out]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    leading = axes[0] if adjacent else 0
    # Counted from the back: the axis of the values that pairs up with the true positions.
    behind = data.ty.ndim - len(axes) - leading
    pairing = values.ty.ndim - 1 - behind
    if pairing >= 0 and not is_one(shape_of(values)[pairing]):
        values = spread(call, values, rank_of, pairing)
    written = _put(call, data, spread_out, values, add)
    return choose(call, mask, first, written, data)


def _coordinates(call: TorchCall, mask: Any, size: Any) -> list[Any]:
    """For each axis of the mask, the coordinate of every position of the flattened mask."""
    shape = shape_of(mask)
    parts = []
    for axis, extent in enumerate(shape):

        def coordinate(size: Any, stride: Any, extent: Any) -> te.Tensor:
            return te.compute(
                (size,),
                lambda i: tirx.floormod(tirx.floordiv(i.astype("int64"), stride), extent),
                name="coordinate",
            )

        stride = number_of(shape[axis + 1 :])
        parts.append(call.compute(coordinate, size, stride, extent, name="coordinate"))
    return parts


def _expect_broadcast(call: TorchCall, values: Any, selected: Sequence[Any]) -> None:
    """Refuse values that do not broadcast to what is selected; ``None`` stands for any length."""
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
