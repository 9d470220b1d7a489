"""``unique`` and its kin: runs of equal elements, of which the run time tells the number."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_empty, number_of
from tvm_scatter.problem.sizes import as_expression

from .call import TorchCall
from .compaction import true_positions
from .ordering import is_float, keys
from .searching import bounds
from .sorting import taken

#: Columns by which ``unique`` sorts slices, one sort for each.
_MOST_COLUMNS = 256


def unique(call: TorchCall) -> Any:
    """``unique`` of all elements, sorted also where that is not asked for."""
    data, shape = call["self"], shape_of(call["self"])
    slices = call.reshape(data, (number_of(shape), 1))
    return _runs(call, slices, _order(call, slices), shape, (), 0)


def unique_slices(call: TorchCall) -> Any:
    """``unique`` along a dimension: slices in lexicographic order."""
    slices, rest, dim = _slices(call)
    return _runs(call, slices, _order(call, slices), shape_of(slices)[:1], rest, dim)


def unique_consecutive(call: TorchCall) -> Any:
    """``unique_consecutive``, of all elements or along a dimension."""
    data, shape = call["self"], shape_of(call["self"])
    if call["dim"] is None:
        return _runs(call, call.reshape(data, (number_of(shape), 1)), None, shape, (), 0)
    slices, rest, dim = _slices(call)
    return _runs(call, slices, None, shape_of(slices)[:1], rest, dim)


def _slices(call: TorchCall) -> tuple[Any, list[Any], int]:
    """The slices along ``dim`` as rows, the shape of one of them, and ``dim``."""
    data, shape = call["self"], shape_of(call["self"])
    dim = call.axis(call["dim"], len(shape))
    others = [axis for axis in range(len(shape)) if axis != dim]
    moved = call.emit(relax.op.permute_dims(data, [dim, *others])) if dim else data
    rest = [shape[axis] for axis in others]
    return call.reshape(moved, (shape[dim], number_of(rest))), rest, dim


def _order(call: TorchCall, slices: Any) -> Any:
    """The positions of the rows in lexicographic order: sorted by the last column at first."""
    columns = shape_of(slices)[1]
    if not isinstance(columns, int):
        raise call.error(
            "only the size of the axis dim may be dynamic; those of the others must be known at "
            f"compile time, but a slice has {columns} elements."
        )
    if columns > _MOST_COLUMNS:
        raise call.error(f"slices of {columns} elements must have at most {_MOST_COLUMNS}.")
    if is_empty(slices):
        return None
    order, key = None, keys(call, slices)

    def column(key: te.Tensor, at: int) -> te.Tensor:
        return te.compute((key.shape[0],), lambda i: key(i, at), name="column")

    for at in reversed(range(columns)):
        each = call.compute(lambda key, at=at: column(key, at), key, name="column")
        each = each if order is None else taken(call, each, order, 0)
        places = call.emit(relax.op.argsort(each, 0, dtype="int64"))
        order = places if order is None else taken(call, order, places, 0)
    return order


def _runs(call: TorchCall, slices: Any, order: Any, shape: Any, rest: Any, dim: int) -> Any:
    """One row of each run of equal rows, the run of each row, and the lengths of the runs."""
    rows = shape_of(slices)[0]
    first = _first_of_runs(call, slices, order)
    starts = true_positions(call, first)
    (count,) = shape_of(starts)
    chosen = starts if order is None else taken(call, order, starts, 0)
    values = call.emit(relax.op.take(slices, chosen, 0, mode=call.origin))
    values = call.reshape(values, (count, *rest) if "dim" in call or rest else (count,))
    if dim:
        axes = [*range(1, dim + 1), 0, *range(dim + 1, len(rest) + 1)]
        values = call.emit(relax.op.permute_dims(values, axes))
    none = call.emit(relax.op.zeros((0,), "int64"))
    inverse = _inverse(call, starts, rows, order, shape) if call["return_inverse"] else none
    counts = _lengths(call, starts, rows) if call["return_counts"] else none
    return call.emit(relax.Tuple([values, inverse, counts]))


def _first_of_runs(call: TorchCall, slices: Any, order: Any) -> Any:
    """Whether a row differs from the one in front of it. "Not a number" differs from itself."""
    if is_empty(slices):
        return call.full(shape_of(slices)[:1], False, "bool")
    unknown = is_float(str(slices.ty.dtype))
    key = keys(call, slices)
    rows, columns = shape_of(key)
    if order is not None:
        key = call.emit(relax.op.take(key, order, 0, mode=call.origin))

    def differs(key: te.Tensor) -> te.Tensor:
        greatest = tirx.max_value(str(key.dtype))

        def at(i: Any, j: Any) -> Any:
            different = key(i, j) != key(tirx.max(i - 1, 0), j)
            if unknown:
                different = tirx.any(different, key(i, j) == greatest)
            return tirx.any(i == 0, different).astype("uint8")

        return te.compute(key.shape, at, name="differs")

    found = call.compute(differs, key, name="differs")
    found = call.reshape(found, (rows,)) if columns == 1 else call.emit(relax.op.max(found, [1]))
    return call.cast(found, "bool")


def _inverse(call: TorchCall, starts: Any, rows: Any, order: Any, shape: Any) -> Any:
    """The number of the run of each row, in the order of the input."""
    if is_empty(starts):
        return call.emit(relax.op.zeros(shape, "int64"))

    def place(rows: Any) -> te.Tensor:
        return te.compute((1, rows), lambda _, i: i.astype("int64"), name="place")

    places = call.compute(place, rows, name="place")
    starts = call.reshape(starts, (1, *shape_of(starts)))
    run = call.reshape(bounds(call, starts, places, right=True), (rows,))
    run = call.emit(relax.op.subtract(run, relax.const(1, "int64")))
    # The first run begins at the first row. This says so to who looks for indices in range.
    run = call.emit(relax.op.maximum(run, relax.const(0, "int64")))
    if order is None:
        return call.reshape(run, shape)
    zeros = call.emit(relax.op.zeros((rows,), "int64"))
    placed = ops.scatter_elements(zeros, order, run, unique=True, operator=call.origin)
    return call.reshape(call.emit(placed), shape)


def _lengths(call: TorchCall, starts: Any, rows: Any) -> Any:
    if is_empty(starts):
        return call.emit(relax.op.zeros((0,), "int64"))

    def lengths(starts: te.Tensor, rows: Any) -> te.Tensor:
        count = starts.shape[0]

        def at(i: Any) -> Any:
            inside = i + 1 < count
            end = tirx.if_then_else(inside, starts(tirx.min(i + 1, count - 1)), rows)
            return end - starts(i)

        return te.compute((count,), at, name="lengths")

    return call.compute(lengths, starts, as_expression(rows), name="lengths")
