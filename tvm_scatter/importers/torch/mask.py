"""Boolean masks without data-dependent shapes.

``nonzero`` of a mask has a length that only the run time knows. Everything here works on all
positions of the mask instead: where it is true, the running count of true positions says which
entry of a list belongs there; where it is false, the data stays.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from .call import TorchCall, is_empty, number_of, shape_of


def ranks(call: TorchCall, mask: Any) -> Any:
    """For each position of the flattened mask: how many true positions stand before it."""
    size = number_of(shape_of(mask))
    flat = call.reshape(mask, (size,))
    counted = call.emit(relax.op.cumsum(flat, axis=0, dtype="int64"))

    def before(total: te.Tensor, chosen: te.Tensor) -> te.Tensor:
        return te.compute(
            total.shape, lambda i: total[i] - chosen[i].astype("int64"), name="true_before"
        )

    return call.compute(before, counted, flat, name="true_before")


def spread(call: TorchCall, listed: Any, rank_of: Any, axis: int) -> Any:
    """Replace an axis that lists the true positions by one that runs over all positions.

    At false positions, and where the list is too short, some entry or zero stands.
    """
    if is_empty(listed):
        shape = list(shape_of(listed))
        shape[axis] = shape_of(rank_of)[0]
        return call.emit(relax.op.zeros(shape, str(listed.ty.dtype)))

    def entry(source: te.Tensor, position: te.Tensor) -> te.Tensor:
        shape = [*source.shape[:axis], position.shape[0], *source.shape[axis + 1 :]]
        length = source.shape[axis]

        def read(*at: Any) -> Any:
            p = position[at[axis]]
            return tirx.if_then_else(
                p < length,
                source(*at[:axis], p, *at[axis + 1 :]),
                tirx.const(0, source.dtype),
            )

        return te.compute(shape, read, name="spread")

    return call.compute(entry, listed, rank_of, name="spread")


def choose(call: TorchCall, mask: Any, first: int, chosen: Any, data: Any) -> Any:
    """``chosen`` where the mask, which covers axes of the data from ``first`` on, is true."""
    return call.emit(relax.op.where(_beside(call, mask, first, data), chosen, data))


def masked_put(call: TorchCall, data: Any, mask: Any, first: int, values: Any, add: bool) -> Any:
    """``data[:, ..., mask] = values`` or ``+= values``, the mask on the axes from ``first`` on."""
    behind = data.ty.ndim - first - mask.ty.ndim
    listing = values.ty.ndim - 1 - behind
    if listing >= 0:
        # The axis of the values that lists the true positions becomes the axes of the mask.
        if shape_of(values)[listing] != 1:
            values = spread(call, values, ranks(call, mask), listing)
            positions = shape_of(mask)
        else:
            positions = tuple(1 for _ in shape_of(mask))
        shape = shape_of(values)
        values = call.reshape(values, (*shape[:listing], *positions, *shape[listing + 1 :]))
    dtype = str(data.ty.dtype)
    if add and dtype == "bool":
        values = call.emit(relax.op.logical_or(data, values))
    elif add:
        values = call.emit(relax.op.add(data, values))
    return choose(call, mask, first, values, data)


def masked_scatter(call: TorchCall) -> Any:
    """``masked_scatter``: the source's elements, in order, at the true positions."""
    data, mask, source = call["self"], call["mask"], call["source"]
    dtype = str(data.ty.dtype)
    call.expect_dtype("source", source, dtype)
    if str(mask.ty.dtype) != "bool":
        raise call.error(f"mask of type {mask.ty.dtype} must be of type bool.")
    shape = call.broadcast(data, mask)
    data = call.emit(relax.op.broadcast_to(data, shape))
    mask = call.emit(relax.op.broadcast_to(mask, shape))
    if is_empty(data) or is_empty(source):
        return data
    flat = call.reshape(source, (number_of(shape_of(source)),))
    spread_out = spread(call, flat, ranks(call, mask), 0)
    return call.emit(relax.op.where(mask, call.reshape(spread_out, shape), data))


def _beside(call: TorchCall, mask: Any, first: int, data: Any) -> Any:
    behind = data.ty.ndim - first - mask.ty.ndim
    return call.reshape(mask, (*shape_of(mask), *(1 for _ in range(behind))))
