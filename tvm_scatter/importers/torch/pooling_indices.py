"""Positions of the maxima of max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import number_of, shape_of

from .call import TorchCall
from .decompose import reads_more_than_first


def max_pool(call: TorchCall) -> Any:
    """``max_pool2d_with_indices`` and that of 3-D. TVM's positions are zeros, and are floats."""
    if not reads_more_than_first(call.node):
        return None
    axes = 3 if "pool3d" in call.name else 2
    data = call["self"]
    own = shape_of(data)
    kernel, padding, dilation = (
        _of_each_axis(call[name], axes) for name in ("kernel_size", "padding", "dilation")
    )
    stride = _of_each_axis(call["stride"] or call["kernel_size"], axes)
    images = call.reshape(data, (1, number_of(own[:-axes]), *own[-axes:]))
    operator = relax.op.nn.max_pool3d if axes == 3 else relax.op.nn.max_pool2d
    pool = operator(images, kernel, stride, padding, dilation, ceil_mode=call["ceil_mode"])
    pooled = shape_of(call.bb.normalize(pool))
    sizes = (*own[-axes:], *pooled[1:])

    def corner(tap: Any, place: Sequence[Any]) -> list[Any]:
        """The coordinates of an element of a window."""
        coordinates = []
        for axis in reversed(range(axes)):
            step, tap = tirx.floormod(tap, kernel[axis]), tirx.floordiv(tap, kernel[axis])
            at = place[axis] * stride[axis] - padding[axis] + step * dilation[axis]
            coordinates.append(at)
        return coordinates[::-1]

    def windows(images: te.Tensor, *sizes: Any) -> te.Tensor:
        """The elements of each window, with the lowest value in place of padding."""

        def element(channel: Any, *place: Any) -> Any:
            at = corner(place[-1], place[:-1])
            inside = [each >= 0 for each in at] + [x < n for x, n in zip(at, sizes, strict=False)]
            lowest = _lowest(str(images.dtype))
            return tirx.if_then_else(tirx.all(*inside), images(0, channel, *at), lowest)

        return te.compute((*sizes[axes:], prod(kernel)), element, name="windows")

    def positions(taps: te.Tensor, *extents: Any) -> te.Tensor:
        """Where the maxima are in an image. Of equal values it is the first inside of the image."""

        def position(channel: Any, *place: Any) -> Any:
            flat = tirx.const(0, "int64")
            for at, extent in zip(corner(taps(channel, *place), place), extents, strict=True):
                flat = flat * extent + tirx.max(at, tirx.const(0, "int64"))
            return flat.astype("int64")

        return te.compute(taps.shape, position, name="positions")

    elements = call.compute(windows, images, *sizes, name="windows")
    values = call.emit(relax.op.max(elements, -1))
    taps = call.emit(relax.op.argmax(elements, -1))
    found = call.compute(positions, taps, *own[-axes:], name="positions")
    shape = (*own[:-axes], *pooled[-axes:])
    return call.emit(relax.Tuple([call.reshape(values, shape), call.reshape(found, shape)]))


def _lowest(dtype: str) -> Any:
    """No value of the type is less."""
    return tirx.const(-inf, dtype) if "float" in dtype else tirx.min_value(dtype)


def _of_each_axis(number: Any, axes: int) -> list[int]:
    """One number for each axis."""
    numbers = list(number) if isinstance(number, list | tuple) else [number]
    return numbers * axes if len(numbers) == 1 else numbers
