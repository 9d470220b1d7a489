"""Slices and parts of symbolic sizes, and views of nothing: TVM cannot compile the shapes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty, no_elements, same_shape
from tvm_scatter.problem.sizes import as_expression

from .call import TorchCall
from .sizes import is_one, known_size
from .slice import bound, diagonal_of, length_of


def slice_tensor(call: TorchCall) -> Any:
    """``slice`` with a symbolic start or end, of a symbolic size, or without elements."""
    data, start, end = call["self"], call["start"], call["end"]
    shape = shape_of(data)
    axis = call.axis(call["dim"], len(shape))
    if all(each is None or isinstance(each, int) for each in (start, end, shape[axis])):
        return _empty_slice(call, data, axis)
    size, step = known_size(call, axis), call["step"]
    if size is None or not isinstance(step, int):
        # TVM counts axes from the front where it does not know the size.
        return None if call["dim"] >= 0 else _slice_along(call, data, axis, (start, end, step))
    wanted = [*shape[:axis], size, *shape[axis + 1 :]]
    start = 0 if start is None else start
    if isinstance(start, int) and start == 0 and step == 1 and same_shape(wanted, shape):
        return data

    def part(data: te.Tensor, start: Any, size: Any) -> te.Tensor:
        from_end = tirx.max(start + data.shape[axis], tirx.IntImm("int64", 0))
        first = tirx.Select(start < 0, from_end, start)

        def at(*place: Any) -> Any:
            return data(*place[:axis], first + place[axis] * step, *place[axis + 1 :])

        return te.compute([*data.shape[:axis], size, *data.shape[axis + 1 :]], at, name="part")

    data = _long_enough(call, data, axis, size)
    return call.compute(part, data, as_expression(start), size, name="part")


def _slice_along(call: TorchCall, data: Any, axis: int, bounds: tuple[Any, Any, Any]) -> Any:
    start, end, step = bounds
    start, end = 0 if start is None else start, shape_of(data)[axis] if end is None else end
    return call.emit(relax.op.strided_slice(data, [axis], [start], [end], [step]))


def _empty_slice(call: TorchCall, data: Any, axis: int) -> Any:
    """A slice of constant bounds if it has no elements, which TVM refuses; else ``None``."""
    shape = list(shape_of(data))
    extent = shape[axis]
    ends = bound(call["start"], 0, extent), bound(call["end"], extent, extent)
    shape[axis] = length_of(*ends, call["step"])
    if shape[axis] != 0:
        return None
    return call.emit(no_elements(relax.TensorType(shape, data.ty.dtype)))


def squeeze(call: TorchCall) -> Any:
    """``squeeze`` where sizes vary: TVM leaves out axes that PyTorch keeps.

    Of a size of which PyTorch proves that it is 1, TVM may know a formula.
    """
    data, seen = call["self"], call.node.args[0].meta.get("val")
    asked = call.get("dim", None)
    if seen is None or all(isinstance(size, int) for size in seen.shape):
        return None
    shape = list(shape_of(data))
    dims = range(len(shape)) if asked is None else [asked] if isinstance(asked, int) else asked
    axes = {dim % max(len(shape), 1) for dim in dims}
    ones = sorted(axis for axis in axes if is_one(seen.shape[axis], shape[axis]))
    wanted = [1 if axis in ones else size for axis, size in enumerate(shape)]
    data = call.expect_sizes("self", shape, wanted, data, wanted)
    return call.emit(relax.op.squeeze(data, ones)) if ones else data


def split(call: TorchCall) -> Any:
    """``split_with_sizes`` with symbolic sizes, or into parts without elements."""
    data, sizes = call["self"], call["split_sizes"]
    # TVM reads the numbers where PyTorch may have computed them.
    if all(isinstance(size, int) for size in call.node.args[1]) and 0 not in sizes:
        return None
    shape = shape_of(data)
    axis = call.axis(call["dim"], len(shape))
    ends = list(accumulate(sizes))
    before, after = shape[:axis], shape[axis + 1 :]
    total = (*before, ends[-1], *after)
    data = call.expect_sizes("split_sizes", total, shape, data)

    def part(data: te.Tensor, first: Any, size: Any) -> te.Tensor:
        def at(*place: Any) -> Any:
            return data(*place[:axis], first + place[axis], *place[axis + 1 :])

        return te.compute([*data.shape[:axis], size, *data.shape[axis + 1 :]], at, name="part")

    firsts = map(as_expression, [0, *ends[:-1]])
    parts = [
        call.emit(no_elements(relax.TensorType([*before, 0, *after], data.ty.dtype)))
        if isinstance(size, int) and size == 0
        else call.compute(part, data, first, as_expression(size), name="part")
        for first, size in zip(firsts, sizes, strict=True)
    ]
    return call.emit(relax.Tuple(parts))


def unsqueeze(call: TorchCall) -> Any:
    """``unsqueeze`` of no elements, whose shape TVM cannot divide."""
    data = call["self"]
    if not is_empty(data):
        return None
    shape = list(shape_of(data))
    shape.insert(call.axis(call["dim"], len(shape) + 1), 1)
    return call.emit(no_elements(relax.TensorType(shape, data.ty.dtype)))


def diagonal(call: TorchCall) -> Any:
    """``diagonal`` without elements, whose shape TVM takes for another one."""
    data = call["self"]
    starts, length = diagonal_of(call)
    shape = [size for axis, size in enumerate(shape_of(data)) if axis not in starts]
    shape.append(length)
    if not any(isinstance(size, int) and size == 0 for size in shape):
        return None
    return call.emit(no_elements(relax.TensorType(shape, data.ty.dtype)))


def _long_enough(call: TorchCall, data: Any, axis: int, size: Any) -> Any:
    """The data, after a check that the slice has the size that PyTorch knows.

    PyTorch knows it only for the sizes of inputs that the program was exported for.
    """
    shape = list(shape_of(data))
    extent, step = shape[axis], call["step"]
    start = 0 if call["start"] is None else call["start"]
    if _is_inside(start, size, step, extent):
        return data
    end = bound(call["end"], extent, extent)
    length = length_of(bound(start, 0, extent), end, step)
    rest = shape[axis + 1 :]
    return call.expect_sizes(
        "the slice", [*shape[:axis], length, *rest], [*shape[:axis], size, *rest], data, shape
    )


def _is_inside(start: Any, size: Any, step: int, extent: Any) -> bool:
    """Whether a slice that is not empty certainly ends before its axis does."""
    first, last = as_expression(start), start + (as_expression(size) - 1) * step
    analyzer = Analyzer()
    for variable in tirx.analysis.undefined_vars(tirx.Evaluate(first + last + extent)):
        analyzer.bind(variable, tvm.ir.Range(0, 2**40))
    with analyzer.constraint_scope(as_expression(size) > 0):
        return bool(analyzer.can_prove(tirx.all(first >= 0, last < extent)))
