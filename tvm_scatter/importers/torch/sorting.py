"""Sorting and what PyTorch picks from a sorted dimension: ``topk``, ``kthvalue``, ``median``.

TVM sorts "not a number" anywhere, and equal elements on a GPU in any order. Here it sorts integers
that have PyTorch's order. Each sort is stable.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty, number_of

from .call import TorchCall, constant
from .extremes import first_of
from .ordering import is_float, keys, unknown
from .searching import bounds


def sort(call: TorchCall) -> Any:
    """``sort``: values and their positions."""
    data, dim, shape = _line(call)
    positions = _sorted(call, data, dim, descending=call["descending"])
    return _pair(call, data, positions, dim, shape)


def argsort(call: TorchCall) -> Any:
    """``argsort``."""
    data, dim, shape = _line(call)
    return call.reshape(_sorted(call, data, dim, descending=call["descending"]), shape)


def topk(call: TorchCall) -> Any:
    """``topk``, sorted also where that is not asked for."""
    data, dim, shape = _line(call)
    count = call["k"]
    data = call.expect_at_least(count, data, [dim])
    positions = _first(call, data, dim, count, descending=call["largest"])
    return _pair(call, data, positions, dim, shape_of(positions) if shape else shape)


def kthvalue(call: TorchCall) -> Any:
    """``kthvalue``: the k-th smallest value, and its position."""
    data, dim, shape = _line(call)
    count = call["k"]
    data = call.expect_at_least(count, data, [dim])
    positions = _part(call, _first(call, data, dim, count), dim, count - 1, 1)
    return _picked(call, data, positions, dim, shape)


def median(call: TorchCall) -> Any:
    """``median`` and ``nanmedian``: the lower one of two middle values, of all or along ``dim``."""
    if "dim" in call:
        data, dim, shape = _line(call)
        data = call.expect_at_least(1, data, [dim])
        return _picked(call, data, _middle(call, data, dim), dim, shape)
    data = call["self"]
    if is_empty(data) and is_float(str(data.ty.dtype)):
        return call.full((), math.nan, str(data.ty.dtype))
    if is_empty(data):
        raise call.error("there is no median of no integers; it takes at least one element.")
    data = call.reshape(data, (number_of(shape_of(data)),))
    if is_float(str(data.ty.dtype)):
        return call.reshape(_first_or_nan(call, data, _middle(call, data, 0)), ())
    data = call.expect_at_least(1, data, [0])
    return call.reshape(taken(call, data, _middle(call, data, 0), 0), ())


def _first_or_nan(call: TorchCall, data: Any, position: Any) -> Any:
    """The element at a position; there is none if the run time finds no elements."""

    def read(data: te.Tensor, position: te.Tensor) -> te.Tensor:
        unknown = tirx.const(math.nan, str(data.dtype))

        def at(place: Any) -> Any:
            return tirx.if_then_else(data.shape[0] > 0, data(position(place)), unknown)

        return te.compute((1,), at, name="first_or_nan")

    return call.compute(read, data, position, name="first_or_nan")


def _middle(call: TorchCall, data: Any, dim: int) -> Any:
    """The position of the median. ``median`` of "not a number" and others is "not a number"."""
    order = _sorted(call, data, dim)
    ignored = call.name == "nanmedian"
    shape = shape_of(data)
    if not is_float(str(data.ty.dtype)):
        return _part(call, order, dim, (shape[dim] - 1) // 2, 1)
    unknowns = call.cast(unknown(call, data), "int64")
    count = call.emit(relax.op.sum(unknowns, dim, keepdims=True))

    def middle(order: te.Tensor, count: te.Tensor) -> te.Tensor:
        extent = order.shape[dim].astype("int64")

        def at(*place: Any) -> Any:
            first = [*place[:dim], 0, *place[dim + 1 :]]
            known = extent - count(*first)
            middle = tirx.floordiv(tirx.max(known - 1, 0), 2)
            if not ignored:
                middle = tirx.Select(known < extent, known, tirx.floordiv(extent - 1, 2))
            # Without elements, there is no order to read.
            found = order(*place[:dim], middle, *place[dim + 1 :])
            return tirx.if_then_else(extent > 0, found, tirx.const(0, order.dtype))

        return te.compute(_with(order.shape, dim, 1), at, name="middle")

    return call.compute(middle, order, count, name="middle")


def mode(call: TorchCall) -> Any:
    """``mode``: the smallest of the most frequent values, and the last of its positions."""
    data, dim, shape = _line(call)
    data = call.expect_at_least(1, data, [dim])
    order = _sorted(call, data, dim)
    ordered = _flat(call, taken(call, keys(call, data), order, dim), dim)
    begin, end = (bounds(call, ordered, ordered, right=right) for right in (False, True))
    run = call.emit(relax.op.subtract(end, begin))
    _, longest = first_of(call, run, 1, True)
    end = taken(call, end, longest, 1)
    place = call.emit(relax.op.subtract(end, constant(1, "int64")))
    positions = taken(call, _flat(call, order, dim), place, 1)
    return _picked(call, data, call.reshape(positions, _with(shape_of(data), dim, 1)), dim, shape)


def _flat(call: TorchCall, tensor: Any, dim: int) -> Any:
    """The lines along a dimension as the rows of a matrix."""
    shape = shape_of(tensor)
    others = [axis for axis in range(len(shape)) if axis != dim]
    if dim != len(shape) - 1:
        tensor = call.emit(relax.op.permute_dims(tensor, [*others, dim]))
    return call.reshape(tensor, (number_of([shape[axis] for axis in others]), shape[dim]))


def _line(call: TorchCall) -> tuple[Any, int, Any]:
    """The data with at least one dimension, the one to sort, and the shape that PyTorch sees."""
    data = call["self"]
    shape = shape_of(data)
    return call.reshape(data, shape or (1,)), call.axis(call["dim"], len(shape)), shape


def _sorted(call: TorchCall, data: Any, dim: int, *, descending: bool = False) -> Any:
    """The positions of the elements in order, equal ones as they come."""
    if is_empty(data):
        return call.emit(relax.op.zeros(shape_of(data), "int64"))
    order = keys(call, data, descending=descending)
    return call.emit(relax.op.argsort(order, dim, dtype="int64"))


def _first(call: TorchCall, data: Any, dim: int, count: Any, *, descending: bool = False) -> Any:
    """The positions of the first elements in order. TVM's ``topk`` wants to know their number."""
    if is_empty(data) or not isinstance(count, int) or count < 1:
        positions = _sorted(call, data, dim, descending=descending)
        return _part(call, positions, dim, 0, count)
    order = keys(call, data, descending=descending)
    return call.emit(relax.op.topk(order, count, dim, "indices", False, "int64"))


def taken(call: TorchCall, data: Any, positions: Any, dim: int) -> Any:
    """The elements at positions along a dimension, all of which are in bounds."""
    if is_empty(positions):
        return call.emit(relax.op.zeros(shape_of(positions), str(data.ty.dtype)))

    def read(data: te.Tensor, positions: te.Tensor) -> te.Tensor:
        def at(*place: Any) -> Any:
            return data(*place[:dim], positions(*place), *place[dim + 1 :])

        return te.compute(positions.shape, at, name="taken")

    return call.compute(read, data, positions, name="taken")


def _part(call: TorchCall, positions: Any, dim: int, first: Any, count: Any) -> Any:
    """``count`` entries along a dimension."""

    def part(positions: te.Tensor, first: Any, count: Any) -> te.Tensor:
        def at(*place: Any) -> Any:
            return positions(*place[:dim], place[dim] + first, *place[dim + 1 :])

        return te.compute(_with(positions.shape, dim, count), at, name="part")

    wanted = _with(shape_of(positions), dim, count)
    if is_empty(positions) or 0 in [size for size in wanted if isinstance(size, int)]:
        return call.emit(relax.op.zeros(wanted, "int64"))
    return call.compute(part, positions, first, count, name="part")


def _with(shape: Any, dim: int, size: Any) -> list[Any]:
    return [*shape[:dim], size, *shape[dim + 1 :]]


def _pair(call: TorchCall, data: Any, positions: Any, dim: int, shape: Any) -> Any:
    """The elements at positions, and the positions."""
    values = call.reshape(taken(call, data, positions, dim), shape)
    return call.emit(relax.Tuple([values, call.reshape(positions, shape)]))


def _picked(call: TorchCall, data: Any, positions: Any, dim: int, shape: Any) -> Any:
    """The same for one position of each line, whose dimension stays if ``keepdim`` is set."""
    if not shape:
        return _pair(call, data, positions, dim, shape)
    kept = _with(shape, dim, 1) if call["keepdim"] else [*shape[:dim], *shape[dim + 1 :]]
    return _pair(call, data, positions, dim, kept)
