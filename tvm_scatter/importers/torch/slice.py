"""Writes through a view: ``select_scatter``, ``slice_scatter``, ``diagonal_scatter`` and strides.

Most become an ``index_put``. The indices of a slice or a diagonal advance by a fixed step, so none
repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.shapes import is_empty, no_elements, number_of
from tvm_scatter.problem.sizes import as_expression

from .call import TorchCall

#: The greatest length of an index that is stored in the model. A longer one is computed.
_MOST_CONSTANT = 4096


def select_scatter(call: TorchCall) -> Any:
    """``select_scatter``: write one position of an axis."""
    data, source, position = call["self"], call["src"], call["index"]
    shape = shape_of(data)
    if not shape:
        raise call.error("data must have at least one dimension.")
    axis = call.axis(call["dim"], len(shape))
    extent = shape[axis]
    if isinstance(position, int):
        if isinstance(extent, int) and not -extent <= position < extent:
            raise call.error(
                f"index {position} is out of range for dimension {axis} of data of shape "
                f"{tuple(shape)}."
            )
        position = position + extent if position < 0 else position
    return _select(call, data, source, axis, position)


def _select(call: TorchCall, data: Any, source: Any, axis: int, position: Any) -> Any:
    shape = shape_of(data)
    source = call.expect_shape("src", source, (*shape[:axis], *shape[axis + 1 :]))
    source = call.reshape(source, (*shape[:axis], 1, *shape[axis + 1 :]))
    return _write(call, data, source, {axis: (position, 1)}, 1)


def decomposed_select_scatter(call: TorchCall) -> Any:
    """Recover ``select_scatter`` from a ``where``; ``None`` if the ``where`` is another one.

    PyTorch decomposes ``select_scatter`` into ``where(arange == position, source, data)``, which
    reads and writes all of the data to change one row.
    """
    mask, expanded = call.node.args[:2]
    source = expanded.args[0] if _is(expanded, "expand.default") else None
    if source is None or not _is(mask, "eq.Scalar") or not _is(source, "unsqueeze.default"):
        return None
    data = call["other"]
    source, axis = source.args[:2]
    position = call.importer._retrieve_args(mask.args[1])
    return _select(call, data, call.importer.env[source], int(axis) % data.ty.ndim, position)


def _is(node: Any, name: str) -> bool:
    return getattr(getattr(node, "target", None), "__name__", "") == name


def slice_scatter(call: TorchCall) -> Any:
    """``slice_scatter``: write every ``step``-th position of a range of an axis."""
    data, source, step = call["self"], call["src"], call["step"]
    shape = shape_of(data)
    if not shape:
        raise call.error("data must have at least one dimension.")
    axis = call.axis(call["dim"], len(shape))
    extent = shape[axis]
    start = bound(call["start"], 0, extent)
    end = bound(call["end"], extent, extent)
    if isinstance(step, int) and step <= 0:
        raise call.error(f"step {step} must be positive.")
    wanted = length_of(start, end, step)
    expected = (*shape[:axis], wanted, *shape[axis + 1 :])
    if is_empty(source):
        return call.expect_sizes("src", shape_of(source), expected, data)
    count = wanted if isinstance(wanted, int) or source.ty.ndim <= axis else shape_of(source)[axis]
    known = (*shape[:axis], count, *shape[axis + 1 :])
    source = call.expect_sizes("src", shape_of(source), expected, source, known)
    return _write(call, data, source, {axis: (start, step)}, count)


def diagonal_scatter(call: TorchCall) -> Any:
    """``diagonal_scatter``: write a diagonal of two axes. The source's last axis runs along it."""
    data, source = call["self"], call["src"]
    shape = shape_of(data)
    rank = len(shape)
    starts, wanted = diagonal_of(call)
    rest = [dim for axis, dim in enumerate(shape) if axis not in starts]
    if is_empty(source):
        return call.expect_sizes("src", shape_of(source), (*rest, wanted), data)
    length = wanted if isinstance(wanted, int) or not source.ty.ndim else shape_of(source)[-1]
    source = call.expect_sizes("src", shape_of(source), (*rest, wanted), source, (*rest, length))
    first, last = sorted(starts)
    # NumPy's rule: the axis of the indices takes the place of the indexed axes if they are
    # adjacent, and is the first axis otherwise.
    place = first if last == first + 1 else 0
    order = [*range(place), rank - 2, *range(place, rank - 2)]
    if order != list(range(rank - 1)):
        source = call.emit(relax.op.permute_dims(source, order))
    return _write(call, data, source, {axis: (starts[axis], 1) for axis in (first, last)}, length)


def as_strided(call: TorchCall) -> Any:
    """``as_strided`` on compact data: read the elements that ``as_strided_scatter`` writes."""
    data = _permuted(call, call["self"], _axes_in_memory(call))
    size, stride, offset = list(call["size"]), list(call["stride"]), _offset(call)
    elements = number_of(shape_of(data))
    if 0 in size:
        return call.emit(no_elements(relax.TensorType(size, data.ty.dtype)))
    if offset == 0 and stride == _compact_strides(size) and number_of(size) == elements:
        return call.reshape(data, size)
    flat = call.reshape(data, (elements,))
    if not all(isinstance(number, int) for number in (*size, *stride, offset, elements)):
        # Whether all positions lie inside of the data is known only at run time, so this read
        # follows the bounds policy.
        positions = _positions(call, size, stride, offset)
        return call.emit(
            read_ops.index(flat, [positions], [0], wrap_negative=False, operator=call.origin)
        )
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if not 0 <= offset <= last < elements:
        raise call.error(
            f"size {size} with strides {stride} does not fit in data of shape "
            f"{text(shape_of(data))} from position {offset} on."
        )

    def read(source: te.Tensor, size: Any, stride: Any, offset: Any) -> te.Tensor:
        return te.compute(size, lambda *at: source(_strided(at, stride, offset)), name="strided")

    return call.compute(read, flat, size, stride, offset, name="strided")


def copy(call: TorchCall) -> Any:
    """``copy``: a tensor of the shape and type of the data, with the source's values."""
    data = call["self"]
    source = call.cast(call["src"], str(data.ty.dtype))
    return call.broadcast_to("src", source, shape_of(data))


def copy_strided(call: TorchCall) -> Any:
    """``copy_strided``: the same values. Relax knows no strides.

    PyTorch makes it of in-place operators of a transposed view, whose strides the result keeps.
    """
    return call["a"]


def as_strided_scatter(call: TorchCall) -> Any:
    """``as_strided_scatter`` on compact data: write elements at any strides, such as a diagonal."""
    axes = _axes_in_memory(call)
    data, source = _permuted(call, call["self"], axes), call["src"]
    size, stride = list(call["size"]), list(call["stride"])
    if is_empty(source):
        return call.expect_sizes("src", shape_of(source), size, call["self"])
    source = call.expect_shape("src", source, size)
    elements = number_of(shape_of(data))
    flat = call.reshape(data, (elements,))
    index = _positions(call, size, stride, _offset(call))
    count = number_of(size)
    result = ops.index_put(
        flat,
        [call.reshape(index, (count,))],
        call.reshape(source, (count,)),
        [0],
        wrap_negative=False,
        operator=call.origin,
    )
    back = sorted(range(len(axes)), key=axes.__getitem__)
    return _permuted(call, call.reshape(call.emit(result), shape_of(data)), back)


def _axes_in_memory(call: TorchCall) -> list[int]:
    """The axes of compact data as they lie in PyTorch's memory, the outermost first."""
    described = call.node.args[0].meta.get("val")
    axes = list(range(call["self"].ty.ndim))
    strides = () if described is None else described.stride()
    if not all(isinstance(stride, int) for stride in strides) or described.is_contiguous():
        return axes
    axes.sort(key=lambda axis: -strides[axis])
    if not described.permute(axes).is_contiguous():
        raise call.error(f"data with strides {list(strides)} is not compact.")
    return axes


def _compact_strides(size: Sequence[Any]) -> list[Any]:
    """The strides of elements that lie side by side."""
    return [number_of(size[axis + 1 :]) for axis in range(len(size))]


def _offset(call: TorchCall) -> Any:
    """Where the view begins in the data. PyTorch counts from the start of the data's memory."""
    described = call.node.args[0].meta.get("val")
    begin = 0 if described is None else described.storage_offset()
    return 0 if call["storage_offset"] is None else call["storage_offset"] - begin


def _permuted(call: TorchCall, tensor: Any, axes: list[int]) -> Any:
    if axes == sorted(axes):
        return tensor
    return call.emit(relax.op.permute_dims(tensor, axes))


def _write(
    call: TorchCall, data: Any, source: Any, ranges: dict[int, tuple[Any, Any]], count: Any
) -> Any:
    """Write along some axes, at ``start + step * i`` of each, for ``i`` from 0 to ``count - 1``.

    Parameters
    ----------
    ranges : dict of int to (start, step)
        By axis.
    """
    call.expect_dtype("src", source, str(data.ty.dtype))

    indices = [_counting(call, count, start, step) for start, step in ranges.values()]
    return call.emit(
        ops.index_put(
            data,
            indices,
            source,
            list(ranges),
            wrap_negative=False,
            unique=True,
            operator=call.origin,
        )
    )


def _positions(call: TorchCall, size: Any, stride: Any, offset: Any) -> Any:
    """The position in the flattened data of each element of a strided view."""

    def positions(size: Any, stride: Any, offset: Any) -> te.Tensor:
        return te.compute(size, lambda *at: _strided(at, stride, offset), name="positions")

    return call.compute(positions, size, stride, offset, name="positions")


def _strided(at: Sequence[Any], stride: Sequence[Any], offset: Any) -> Any:
    total: Any = tirx.IntImm("int64", 0) + offset
    for i, step in zip(at, stride, strict=True):
        total = total + i.astype("int64") * step
    return total


def _counting(call: TorchCall, count: Any, start: Any, step: Any) -> Any:
    """The index ``start, start + step, ...``.

    Static sizes give a constant or an ``arange``, whose values the passes know.
    """
    if all(isinstance(number, int) for number in (count, start, step)):
        if count <= _MOST_CONSTANT:
            return relax.const(start + step * np.arange(count), "int64")
        return call.emit(relax.op.arange(start, start + step * count, step, "int64"))

    def counting(count: Any, start: Any, step: Any) -> te.Tensor:
        return te.compute((count,), lambda i: i.astype("int64") * step + start, name="counting")

    return call.compute(counting, count, start, step, name="counting")


def diagonal_of(call: TorchCall) -> tuple[dict[int, int], Any]:
    """The two axes of a diagonal with its first position along each, and its length."""
    offset, shape = call["offset"], shape_of(call["self"])
    rank = len(shape)
    if rank < 2:
        raise call.error(f"data of shape {text(shape)} must have at least two dimensions.")
    rows, columns = call.axis(call["dim1"], rank), call.axis(call["dim2"], rank)
    if rows == columns:
        raise call.error(f"dim1 and dim2 must differ, but both are {rows}.")
    starts = {rows: max(-offset, 0), columns: max(offset, 0)}
    ends = [length_of(start, shape[axis], 1) for axis, start in starts.items()]
    numbers = [end for end in ends if isinstance(end, int)]
    if len(numbers) == len(ends) or 0 in numbers:
        return starts, min(numbers)
    return starts, tirx.min(*ends)


def length_of(start: Any, end: Any, step: Any) -> Any:
    """The number of positions in a range."""
    if all(isinstance(number, int) for number in (start, end, step)):
        return max(0, -(-(end - start) // step))
    return tirx.max(tirx.floordiv(end - start + (step - 1), step), tirx.IntImm("int64", 0))


def bound(bound: Any, default: Any, extent: Any) -> Any:
    """A bound of a slice, counted from the front and clamped to the axis."""
    if bound is None:
        return default
    if isinstance(bound, int) and isinstance(extent, int):
        bound = bound + extent if bound < 0 else bound
        return min(max(bound, 0), extent)
    if isinstance(bound, int):
        if bound >= 2**63 - 1:
            return extent
        if bound == 0:
            return 0
    bound = as_expression(bound)
    from_front = tirx.Select(bound < 0, bound + extent, bound)
    return tirx.max(tirx.min(from_front, extent), tirx.IntImm("int64", 0))
