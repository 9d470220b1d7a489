"""ONNX's ``Slice`` whose places are known at run time only.

TVM's own function divides by a step of 0, which ends the process, and takes a slice that ends
before it starts for one of negative size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.expectations import AT_MOST, NOT_NEGATIVE, NOT_ZERO, expect_numbers
from tvm_scatter.problem.sizes import as_expression

from .onnx_sizes import as_tensor, expect_known_length, from_the_front, sizes_in

#: No axis is longer.
_FAR = 2**48


class _Given(NamedTuple):
    """Starts, ends, axes and steps: tensors of the same length, or lists of numbers."""

    starts: Any
    ends: Any
    axes: Any
    steps: Any


def slice_of_tensors(bb: Any, inputs: Sequence[Any]) -> Any:
    """The slice of a tensor, some of whose places are computed."""
    data, *given = (None if each is None else as_tensor(bb, each) for each in inputs)
    shape = shape_of(data)
    for each in given:
        if each is not None and each.ty.ndim != 1:
            raise ScatterError(f"Slice: places of type {each.ty} must be a vector.")
        if each is not None:
            expect_known_length("Slice", each)
    places = _given(bb, given, len(shape))
    data = _checked(bb, data, places, len(shape))
    fixed = isinstance(places.axes, list)
    axes = sorted(places.axes) if fixed else list(range(len(shape)))
    sizes = list(map(as_expression, shape))
    numbers = bb.emit_te(_places, *places, axes, sizes, primfunc_name_hint="slice_places")
    read = sizes_in(bb, "Slice", numbers)
    sizes, begins, steps = sizes.copy(), [0] * len(shape), [1] * len(shape)
    for at, axis in enumerate(axes):
        sizes[axis], begins[axis], steps[axis] = read[at :: len(axes)]
        if fixed and isinstance(places.steps, list):
            steps[axis] = places.steps[places.axes.index(axis)]
    return bb.emit_te(_sliced, data, sizes, begins, steps, primfunc_name_hint="slice")


def slice_of_axis(bb: Any, data: Any, axis: int, start: int, end: int, step: int) -> Any:
    """The slice of a tensor backwards along one axis of symbolic size, by constant numbers."""
    shape = shape_of(data)
    sizes, begins, steps = list(map(as_expression, shape)), [0] * len(shape), [1] * len(shape)
    # Up to a great number TVM would allocate as much as that.
    start = -1 if start > _FAR else start
    places = [tirx.const(max(each, -_FAR), "int64") for each in (start, end, step)]
    found = _of_axis(places[0], places[1], places[2], sizes[axis])
    sizes[axis], begins[axis], steps[axis] = map(Analyzer().simplify, found)
    return bb.emit_te(_sliced, data, sizes, begins, steps, primfunc_name_hint="slice")


def _given(bb: Any, given: Sequence[Any], rank: int) -> _Given:
    starts, ends, axes, steps = given
    count = shape_of(starts)[0]
    lengths = {int(shape_of(each)[0]) for each in given if each is not None}
    if len(lengths) > 1:
        raise ScatterError(
            "Slice: starts, ends, axes and steps must have the same length, but have lengths "
            f"{sorted(lengths)}."
        )
    places = _numbers(bb, axes, list(range(count)))
    if isinstance(places, list):
        places = from_the_front("Slice", places, rank)
        if len(set(places)) < len(places):
            raise ScatterError(f"Slice: axes {places} must differ.")
    moves = _numbers(bb, steps, [1] * count)
    if isinstance(moves, list):
        if 0 in moves:
            raise ScatterError("Slice: a step is 0; it must not be 0.")
        moves = [min(max(step, -_FAR), _FAR) for step in moves]
    return _Given(_int64(bb, starts), _int64(bb, ends), places, moves)


def _numbers(bb: Any, tensor: Any, default: list[int]) -> Any:
    """The numbers of a constant, or the tensor."""
    if tensor is None:
        return default
    if isinstance(tensor, tvm.ir.GenericConst):
        return [int(number) for number in tensor.value.numpy().tolist()]
    return _int64(bb, tensor)


def _int64(bb: Any, tensor: Any) -> Any:
    return bb.emit(relax.op.astype(tensor, "int64"))


def _checked(bb: Any, data: Any, places: _Given, rank: int) -> Any:
    """The data, which is read after a check of axes and steps that only the run time knows."""
    if not isinstance(places.axes, list):
        for axis in sizes_in(bb, "Slice", places.axes):
            front = axis + tirx.Select(axis < 0, tirx.const(rank, "int64"), tirx.const(0, "int64"))
            for rule, limit in ((AT_MOST, rank - 1), (NOT_NEGATIVE, 0)):
                what = "an axis, counted from the front,"
                data = expect_numbers(data, front, rule, limit=limit, what=what, operator="Slice")
                data = bb.emit(data)
    if not isinstance(places.steps, list):
        for step in sizes_in(bb, "Slice", places.steps):
            data = expect_numbers(data, step, NOT_ZERO, what="a step", operator="Slice")
            data = bb.emit(data)
    return data


def _places(
    starts: te.Tensor, ends: te.Tensor, given: Any, moves: Any, axes: Any, shape: Any
) -> Any:
    """The new sizes of some axes, then where these begin, and then their steps."""
    rank, count = len(shape), int(starts.shape[0])
    found = []
    for axis in axes:
        size, begin, step = shape[int(axis)], tirx.const(0, "int64"), tirx.const(1, "int64")
        result: tuple[Any, ...] = size, begin, step
        for place in range(count):
            at = given[place]
            chosen = _of_axis(starts[place], ends[place], moves[place], shape[int(axis)])
            if isinstance(given, te.Tensor):
                here = tirx.any(at == int(axis), at + rank == int(axis))
                pairs = zip(chosen, result, strict=True)
                result = tuple(tirx.Select(here, *pair) for pair in pairs)
            elif int(at) == int(axis):
                result = chosen
        found.append(result)
    flat = [each[kind] for kind in range(3) for each in found]

    def number(at: Any) -> Any:
        value = flat[0]
        for place, each in enumerate(flat[1:], 1):
            value = tirx.Select(at == place, each, value)
        return value

    return te.compute((len(flat),), number, name="slice_places")


def _of_axis(start: Any, end: Any, step: Any, size: Any) -> tuple[Any, Any, Any]:
    """The new size, the first place and the step, as ONNX has it."""
    zero, one = (tirx.const(number, "int64") for number in (0, 1))
    step = tirx.max(tirx.min(step, tirx.const(_FAR, "int64")), tirx.const(-_FAR, "int64"))
    step = tirx.Select(step == zero, one, step)
    start, end = (tirx.Select(each < zero, each + size, each) for each in (start, end))
    rises = step > zero
    # Backwards, the first place is one of the axis, and the end may be in front of it.
    begin = tirx.min(tirx.max(start, zero), tirx.Select(rises, size, size - one))
    before = tirx.Select(rises, zero, -one)
    stop = tirx.min(tirx.max(end, before), tirx.Select(rises, size, size - one))
    way = tirx.Select(rises, stop - begin, begin - stop)
    steps = tirx.truncdiv(way - one, tirx.Select(rises, step, -step)) + one
    return tirx.Select(way > zero, steps, zero), begin, step


def _sliced(data: te.Tensor, sizes: Any, begins: Any, steps: Any) -> te.Tensor:
    def element(*at: Any) -> Any:
        parts = zip(at, begins, steps, strict=True)
        return data(*(begin + place.astype("int64") * step for place, begin, step in parts))

    return te.compute(list(sizes), element, name="slice")
