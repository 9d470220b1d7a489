"""Windows of a tensor: ``unfold``, and the greatest elements of windows that adapt to a size."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of

from .along import known_sizes
from .call import TorchCall
from .ordering import keys, later_of_unknown, values_of


def unfold(call: TorchCall) -> Any:
    """``unfold``: windows of one size along a dimension, whose elements become the last one."""
    data, size, step = call["self"], call["size"], call["step"]
    shape = shape_of(data)
    dim = call.axis(call["dimension"], len(shape))
    if not shape:
        return call.reshape(data, (size,))

    def windows(data: te.Tensor) -> te.Tensor:
        count = (data.shape[dim] - size) // step + 1

        def at(*place: Any) -> Any:
            inside = place[dim] * step + place[-1]
            return data(*place[:dim], inside, *place[dim + 1 : -1])

        wanted = [*data.shape[:dim], count, *data.shape[dim + 1 :], size]
        return te.compute(wanted, at, name="windows")

    return call.compute(windows, data, name="windows")


def adaptive_max_pool(call: TorchCall) -> Any:
    """``adaptive_max_pool2d`` and that of 3-D: values and positions in the plane or volume."""
    data, wanted = call["self"], [int(size) for size in call["output_size"]]
    shape = shape_of(data)
    before = shape[: len(shape) - len(wanted)]
    sizes = known_sizes(call, "the pooled axes", shape[len(before) :])
    taps = [_longest(size, count) for size, count in zip(sizes, wanted, strict=True)]
    lowest = tirx.min_value(str(keys(call, data).ty.dtype))

    def place_of(tap: Any, window: Sequence[Any]) -> tuple[list[Any], Any]:
        """The coordinates of an element of a window, and whether it is in the window."""
        place, inside = [], []
        for axis in reversed(range(len(wanted))):
            step, tap = tirx.floormod(tap, taps[axis]), tirx.floordiv(tap, taps[axis])
            at = tirx.floordiv(window[axis] * sizes[axis], wanted[axis]) + step
            end = (window[axis] + 1) * sizes[axis] + wanted[axis] - 1
            place.append(at)
            inside.append(at < tirx.floordiv(end, wanted[axis]))
        return place[::-1], tirx.all(*inside)

    def windows(order: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            place, inside = place_of(at[-1], at[len(before) : -1])
            key = later_of_unknown(order(*at[: len(before)], *place), at[-1], str(data.ty.dtype))
            return tirx.if_then_else(inside, key, lowest)

        return te.compute(
            [*order.shape[: len(before)], *wanted, prod(taps)], element, name="windows"
        )

    def places(elements: te.Tensor, best: te.Tensor) -> te.Tensor:
        last = tirx.IntImm("int64", prod(sizes))

        def flat(*at: Any) -> Any:
            place, inside = place_of(at[-1], at[len(before) : -1])
            position: Any = tirx.IntImm("int64", 0)
            for each, size in zip(place, sizes, strict=True):
                position = position * size + each
            chosen = tirx.all(inside, elements(*at) == best(*at[:-1]))
            return tirx.Select(chosen, position.astype("int64"), last)

        return te.compute(elements.shape, flat, name="places")

    elements = call.compute(windows, keys(call, data), name="windows")
    best = call.emit(relax.op.max(elements, [-1]))
    positions = call.emit(relax.op.min(call.compute(places, elements, best, name="places"), [-1]))
    return call.emit(relax.Tuple([values_of(call, best, str(data.ty.dtype)), positions]))


def _longest(size: int, windows: int) -> int:
    """The size of the longest of the windows of an axis."""
    return max(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))
