"""Boolean masks without data-dependent shapes.

The length of a mask's ``nonzero`` is known only at run time. The functions of this module work on
all positions of the mask instead. Values that a model lists one for each true position are called
entries. At a true position, the running count of true positions tells which entry belongs there.
At a false position, and where the list has too few entries, the data stays.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.expectations import EACH_OR_ONE, EACH_OR_ONE_TRUE, ENOUGH, expect_count
from tvm_scatter.ops.shapes import is_empty, is_one, number_of, same_shape

from .call import TorchCall
from .compaction import coordinates


def running_count(call: TorchCall, mask: Any, entries: Any, rule: str, what: str) -> Any:
    """The number of true positions up to and including each position of the flattened mask.

    Under ``raise``, the total and the number of ``entries`` must obey ``rule``.
    """
    flat = call.reshape(mask, (number_of(shape_of(mask)),))
    total = call.emit(relax.op.cumsum(flat, axis=0, dtype="int64"))
    return call.emit(expect_count(total, entries, rule, what=what, operator=call.origin))


def entries_of(call: TorchCall, mask: Any, total: Any, entries: Any) -> Any:
    """The number of the entry for each position of the flattened mask; -1 for no entry.

    If the number of entries is symbolic and is one at run time, the single entry belongs to every
    true position.
    """
    flat = call.reshape(mask, shape_of(total))

    def entry(total: te.Tensor, chosen: te.Tensor, entries: Any) -> te.Tensor:
        none = tirx.IntImm("int64", -1)

        def at(i: Any) -> Any:
            rank = total[i] - 1
            if not isinstance(entries, int):
                rank = tirx.Select(entries == 1, tirx.IntImm("int64", 0), rank)
            return tirx.Select(tirx.all(chosen[i], rank < entries), rank, none)

        return te.compute(total.shape, at, name="entry")

    return call.compute(entry, total, flat, entries, name="entry")


def spread(call: TorchCall, listed: Any, entry_of: Any, axis: int) -> Any:
    """Replace an axis of entries by one that runs over all positions of the flattened mask.

    At positions without an entry the result is zero.
    """
    if is_empty(listed):
        shape = list(shape_of(listed))
        shape[axis] = shape_of(entry_of)[0]
        return call.emit(relax.op.zeros(shape, str(listed.ty.dtype)))

    def entry(source: te.Tensor, position: te.Tensor) -> te.Tensor:
        shape = [*source.shape[:axis], position.shape[0], *source.shape[axis + 1 :]]

        def read(*at: Any) -> Any:
            p = position[at[axis]]
            return tirx.if_then_else(
                p >= 0, source(*at[:axis], p, *at[axis + 1 :]), tirx.const(0, source.dtype)
            )

        return te.compute(shape, read, name="spread")

    return call.compute(entry, listed, entry_of, name="spread")


def spread_values(call: TorchCall, mask: Any, values: Any, axis: int) -> tuple[Any, Any]:
    """Values spread over all positions of a mask along ``axis``, and the mask of their positions.

    A position without an entry is false in the new mask.
    """
    entries = shape_of(values)[axis]
    total = running_count(call, mask, entries, EACH_OR_ONE, "values")
    # The numbers of the entries are computed once for each of their two readers. TVM fuses each
    # into its reader, so they take no memory.
    first, again = (entries_of(call, mask, total, entries) for _ in range(2))
    return spread(call, values, first, axis), _with_entry(call, mask, again)


def choose(call: TorchCall, mask: Any, first: int, chosen: Any, data: Any) -> Any:
    """``chosen`` where the mask is true, else the data. The mask covers axes from ``first`` on."""
    return call.emit(relax.op.where(_beside(call, mask, first, data), chosen, data))


def every_coordinate(call: TorchCall, mask: Any) -> list[Any]:
    """For each axis of the mask, the coordinate of every position of the flattened mask."""
    positions = _counting(call, number_of(shape_of(mask)))
    return coordinates(call, positions, shape_of(mask))


def true_coordinates(call: TorchCall, mask: Any, entries: Any) -> list[Any]:
    """For each axis of the mask, the coordinates of the true positions, one for each entry.

    A single true position is repeated for all entries. If there are more entries than true
    positions, the coordinates of the others are out of bounds.
    """
    total = running_count(call, mask, entries, EACH_OR_ONE_TRUE, "the index beside it")
    found = _true_first(call, mask, total)

    def position(found: te.Tensor, total: te.Tensor, entries: Any) -> te.Tensor:
        def at(i: Any) -> Any:
            count = _last(total)
            entry = tirx.Select(count == 1, tirx.IntImm("int64", 0), i.astype("int64"))
            return tirx.if_then_else(entry < count, found[entry], found.shape[0])

        return te.compute((entries,), at, name="position")

    positions = call.compute(position, found, total, entries, name="position")
    return coordinates(call, positions, shape_of(mask))


def masked_put(call: TorchCall, data: Any, mask: Any, first: int, values: Any, add: bool) -> Any:
    """``data[:, ..., mask] = values`` or ``+= values``; the mask covers axes from ``first`` on."""
    behind = data.ty.ndim - first - mask.ty.ndim
    listing = values.ty.ndim - 1 - behind
    if listing >= 0 and not is_one(shape_of(values)[listing]) and not is_empty(values):
        return _put_listed(call, data, mask, first, values, add)
    if listing >= 0:
        # The axis of entries is replaced by the axes of the mask.
        positions = tuple(1 for _ in shape_of(mask))
        if not is_one(shape_of(values)[listing]):
            positions = shape_of(mask)
            values, mask = spread_values(call, mask, values, listing)
        shape = shape_of(values)
        values = call.reshape(values, (*shape[:listing], *positions, *shape[listing + 1 :]))
    dtype = str(data.ty.dtype)
    if add and dtype == "bool":
        values = call.emit(relax.op.logical_or(data, values))
    elif add:
        values = call.emit(relax.op.add(data, values))
    return choose(call, mask, first, values, data)


def _put_listed(call: TorchCall, data: Any, mask: Any, first: int, values: Any, add: bool) -> Any:
    """The same for values with an axis of entries, in one loop over the data."""
    last = first + mask.ty.ndim
    listing = values.ty.ndim - 1 - (data.ty.ndim - last)
    entries = shape_of(values)[listing]
    total = running_count(call, mask, entries, EACH_OR_ONE, "values")
    fixed = [is_one(dim) for dim in shape_of(values)]

    def put(
        data: te.Tensor, chosen: te.Tensor, total: te.Tensor, values: te.Tensor, entries: Any
    ) -> te.Tensor:
        def at(*place: Any) -> Any:
            position: Any = 0
            for i, extent in zip(place[first:last], chosen.shape, strict=True):
                position = position * extent + i
            entry = total[position] - 1
            if not isinstance(entries, int):
                entry = tirx.Select(entries == 1, tirx.IntImm("int64", 0), entry)
            inside = tirx.all(chosen(*place[first:last]), entry < entries)
            around = [*place[first - listing : first], entry, *place[last:]]
            value = values(*(0 if one else i for one, i in zip(fixed, around, strict=True)))
            if add:
                old = data(*place)
                value = tirx.any(old, value) if data.dtype == "bool" else old + value
            return tirx.if_then_else(inside, value, data(*place))

        return te.compute(data.shape, at, name="put")

    return call.compute(put, data, mask, total, values, entries, name="put")


def masked_scatter(call: TorchCall) -> Any:
    """``masked_scatter``: write the source's elements in order to the true positions."""
    data, mask, source = call["self"], call["mask"], call["source"]
    dtype = str(data.ty.dtype)
    call.expect_dtype("source", source, dtype)
    if str(mask.ty.dtype) != "bool":
        raise call.error(f"mask of type {mask.ty.dtype} must be of type bool.")
    shape = call.broadcast(data, mask)
    data = call.broadcast_to("self", data, shape)
    mask = call.broadcast_to("mask", mask, shape)
    if is_empty(data):
        return data
    elements, size = number_of(shape_of(source)), number_of(shape)
    total = running_count(call, mask, elements, ENOUGH, "source")
    # TVM cannot know that nothing is read of an empty source, so it gets a tensor of one element.
    listed = call.reshape(source, (elements,))
    listed = call.emit(relax.op.zeros((1,), dtype)) if is_empty(source) else listed

    def taken(
        data: te.Tensor, chosen: te.Tensor, total: te.Tensor, listed: te.Tensor, elements: Any
    ) -> te.Tensor:
        def at(i: Any) -> Any:
            rank = total[i] - 1
            return tirx.if_then_else(tirx.all(chosen[i], rank < elements), listed[rank], data[i])

        return te.compute(total.shape, at, name="taken")

    flat = (call.reshape(data, (size,)), call.reshape(mask, (size,)))
    return call.reshape(call.compute(taken, *flat, total, listed, elements, name="taken"), shape)


def masked_scatter_backward(call: TorchCall) -> Any:
    """``masked_scatter_backward``: the gradient at the true positions, in order, then zeros."""
    gradient, mask = call["grad_output"], call["mask"]
    sizes, dtype = tuple(call["sizes"]), str(gradient.ty.dtype)
    shape, elements = shape_of(gradient), number_of(sizes)
    if is_empty(gradient) or elements == 0:
        return call.emit(relax.op.zeros(sizes, dtype))
    size = number_of(shape)
    mask = call.reshape(call.broadcast_to("mask", mask, shape), (size,))
    chosen = call.emit(relax.op.where(mask, call.reshape(gradient, (size,)), relax.const(0, dtype)))
    total = call.emit(relax.op.cumsum(mask, axis=0, dtype="int64"))
    # Room for every position and for every element.
    known = isinstance(size, int) and isinstance(elements, int)
    room = max(size, elements) if known else size + elements
    listed = ops.scatter_elements(
        call.emit(relax.op.zeros((room,), dtype)),
        _places_true_first(call, mask, total),
        chosen,
        unique=True,
        operator=call.origin,
    )
    listed = call.emit(listed)
    if not same_shape((room,), (elements,)):
        listed = call.emit(relax.op.strided_slice(listed, [0], [0], [elements]))
    return call.reshape(listed, sizes)


def _with_entry(call: TorchCall, mask: Any, entry_of: Any) -> Any:
    """The mask, made false at positions without an entry."""
    none = relax.const(0, "int64")
    return call.reshape(call.emit(relax.op.greater_equal(entry_of, none)), shape_of(mask))


def _true_first(call: TorchCall, mask: Any, total: Any) -> Any:
    """The positions of the flattened mask: first the true ones, then the others, each in order."""
    size = shape_of(total)[0]
    return call.emit(
        ops.scatter_elements(
            call.emit(relax.op.zeros((size,), "int64")),
            _places_true_first(call, mask, total),
            _counting(call, size),
            unique=True,
            operator=f"{call.origin} (positions of the mask)",
        )
    )


def _places_true_first(call: TorchCall, mask: Any, total: Any) -> Any:
    """Where each position of the flattened mask comes if the true ones are listed first."""
    flat = call.reshape(mask, shape_of(total))

    def place(total: te.Tensor, chosen: te.Tensor) -> te.Tensor:
        def at(i: Any) -> Any:
            before = i.astype("int64") - total[i]
            return tirx.Select(chosen[i], total[i] - 1, _last(total) + before)

        return te.compute(total.shape, at, name="place")

    return call.compute(place, total, flat, name="place")


def _counting(call: TorchCall, size: Any) -> Any:
    def position(size: Any) -> te.Tensor:
        return te.compute((size,), lambda i: i.astype("int64"), name="position")

    return call.compute(position, size, name="position")


def _last(total: te.Tensor) -> Any:
    """The number of true positions: the last running count, or 0 if the mask is empty."""
    size = total.shape[0]
    return tirx.if_then_else(size > 0, total[tirx.max(size - 1, 0)], tirx.IntImm("int64", 0))


def _beside(call: TorchCall, mask: Any, first: int, data: Any) -> Any:
    behind = data.ty.ndim - first - mask.ty.ndim
    return call.reshape(mask, (*shape_of(mask), *(1 for _ in range(behind))))
