"""Windows of a tensor: ``unfold``, and pooling by windows that adapt to a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.problem.sizes import as_expression

from .call import TorchCall
from .elementwise import sum_type
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
    data, dtype = call["self"], str(call["self"].ty.dtype)
    wanted = list(map(as_expression, call["output_size"]))
    sizes = list(map(as_expression, shape_of(data)[-len(wanted) :]))
    lowest = tirx.min_value(str(keys(call, data).ty.dtype))

    def places(elements: te.Tensor, best: te.Tensor, sizes: Any, wanted: Any) -> te.Tensor:
        windows, last = _Windows(sizes, wanted), prod(sizes)

        def flat(*at: Any) -> Any:
            place, inside = windows.place(at)
            position: Any = tirx.IntImm("int64", 0)
            for each, size in zip(place, sizes, strict=True):
                position = position * size + each
            chosen = tirx.all(inside, elements(*at) == best(*at[:-1]))
            return tirx.Select(chosen, position.astype("int64"), last)

        return te.compute(elements.shape, flat, name="places")

    def key(order: te.Tensor, at: Any, tap: Any) -> Any:
        return later_of_unknown(order(*at), tap, dtype)

    elements = _elements(call, keys(call, data), wanted, key, lowest)
    best = call.emit(relax.op.max(elements, [-1]))
    found = call.compute(places, elements, best, sizes, wanted, name="places")
    positions = call.emit(relax.op.min(found, [-1]))
    return call.emit(relax.Tuple([values_of(call, best, dtype), positions]))


def adaptive_avg_pool(call: TorchCall) -> Any:
    """``adaptive_avg_pool2d`` to a size that only the run time knows, and those of 1-D and 3-D."""
    data, dtype = call["self"], str(call["self"].ty.dtype)
    if all(isinstance(size, int) for size in call["output_size"]):
        return None
    wanted = list(map(as_expression, call["output_size"]))
    sizes = list(map(as_expression, shape_of(data)[-len(wanted) :]))
    wide = sum_type(dtype)

    def divided(sums: te.Tensor, sizes: Any, wanted: Any) -> te.Tensor:
        windows = _Windows(sizes, wanted)
        return te.compute(
            sums.shape, lambda *at: sums(*at) / windows.count(at).astype(wide), name="divided"
        )

    def element(data: te.Tensor, at: Any, _tap: Any) -> Any:
        return data(*at)

    elements = _elements(call, call.cast(data, wide), wanted, element, tirx.const(0, wide))
    sums = call.emit(relax.op.sum(elements, [-1]))
    return call.cast(call.compute(divided, sums, sizes, wanted, name="divided"), dtype)


def _elements(
    call: TorchCall, data: Any, wanted: list[Any], read: Callable[..., Any], other: Any
) -> Any:
    """The elements of each window side by side, and another value in place of those outside."""

    def windows(data: te.Tensor, wanted: Any) -> te.Tensor:
        windows = _Windows(data.shape[-len(wanted) :], wanted)
        before = data.shape[: -len(wanted)]

        def element(*at: Any) -> Any:
            place, inside = windows.place(at)
            return tirx.if_then_else(
                inside, read(data, [*at[: len(before)], *place], at[-1]), other
            )

        return te.compute([*before, *wanted, prod(windows.taps)], element, name="windows")

    return call.compute(windows, data, wanted, name="windows")


class _Windows:
    """Windows that share the last axes out among a number of windows along each.

    Parameters
    ----------
    sizes, counts : sequence of expression
        The sizes of the axes, and how many windows there are along each.

    Attributes
    ----------
    taps : list of expression
        How many elements a window has at most, along each axis.
    """

    def __init__(self, sizes: Sequence[Any], counts: Sequence[Any]) -> None:
        self.axes = list(zip(sizes, counts, strict=True))
        self.taps = [_longest(size, count) for size, count in self.axes]

    def place(self, at: Sequence[Any]) -> tuple[list[Any], Any]:
        """The coordinates of an element of a window, and whether it is in the window.

        Parameters
        ----------
        at : sequence of expression
            The window, and at last the number of the element in it.
        """
        *window, tap = at[-len(self.axes) - 1 :]
        place, inside = [], []
        for axis in reversed(range(len(self.axes))):
            step, tap = tirx.floormod(tap, self.taps[axis]), tirx.floordiv(tap, self.taps[axis])
            begin, end = self._ends(axis, window[axis])
            place.append(begin + step)
            inside.append(begin + step < end)
        return place[::-1], tirx.all(*inside)

    def count(self, at: Sequence[Any]) -> Any:
        """How many elements a window has."""
        window = at[-len(self.axes) :]
        ends = [self._ends(axis, each) for axis, each in enumerate(window)]
        return prod(end - begin for begin, end in ends)

    def _ends(self, axis: int, window: Any) -> tuple[Any, Any]:
        size, count = self.axes[axis]
        return (
            tirx.floordiv(window * size, count),
            tirx.floordiv((window + 1) * size + count - 1, count),
        )


def _longest(size: Any, windows: Any) -> Any:
    """The size of the longest of the windows of an axis, or one more if that is not known."""
    if isinstance(windows, tirx.IntImm) and int(windows) == 1:
        return size
    if isinstance(size, tirx.IntImm) and isinstance(windows, tirx.IntImm):
        size, windows = int(size), int(windows)
        ends = ((i * size // windows, -(-(i + 1) * size // windows)) for i in range(windows))
        return tirx.IntImm("int64", max(end - begin for begin, end in ends))
    return tirx.floordiv(size + windows - 1, windows) + 1
