"""Positions of the maxima of max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import number_of, shape_of

from .call import TorchCall

_SPATIAL = 2


def max_pool2d(call: TorchCall) -> Any:
    """``max_pool2d_with_indices``. TVM's positions are zeros, of the type of the values."""
    if not any(_reads_positions(user) for user in call.node.users):
        return None
    data = call["self"]
    own = shape_of(data)
    kernel, padding, dilation = (
        _pair(call[name]) for name in ("kernel_size", "padding", "dilation")
    )
    stride = _pair(call["stride"] or call["kernel_size"])
    images = call.reshape(data, (1, number_of(own[:-_SPATIAL]), *own[-_SPATIAL:]))
    pool = relax.op.nn.max_pool2d(
        images, kernel, stride, padding, dilation, ceil_mode=call["ceil_mode"]
    )
    pooled = shape_of(call.bb.normalize(pool))
    sizes = (*own[-_SPATIAL:], *pooled[1:])

    def corner(tap: Any, place: Sequence[Any]) -> list[Any]:
        """The coordinates of an element of a window."""
        steps = (tirx.floordiv(tap, kernel[1]), tirx.floormod(tap, kernel[1]))
        return [
            at * stride[axis] - padding[axis] + steps[axis] * dilation[axis]
            for axis, at in enumerate(place)
        ]

    def windows(images: te.Tensor, height: Any, width: Any, *pooled: Any) -> te.Tensor:
        """The elements of each window, with the lowest value in place of padding."""

        def element(channel: Any, *place: Any) -> Any:
            y, x = corner(place[-1], place[:-1])
            inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
            return tirx.if_then_else(inside, images[0, channel, y, x], _lowest(str(images.dtype)))

        return te.compute((*pooled, prod(kernel)), element, name="windows")

    def positions(taps: te.Tensor, width: Any) -> te.Tensor:
        """Where the maxima are in an image. Of equal values it is the first inside of the image."""

        def position(channel: Any, *place: Any) -> Any:
            tap = taps(channel, *place)
            y, x = (tirx.max(at, tirx.const(0, "int64")) for at in corner(tap, place))
            return (y * width + x).astype("int64")

        return te.compute(taps.shape, position, name="positions")

    elements = call.compute(windows, images, *sizes, name="windows")
    values = call.emit(relax.op.max(elements, -1))
    taps = call.emit(relax.op.argmax(elements, -1))
    found = call.compute(positions, taps, own[-1], name="positions")
    shape = (*own[:-_SPATIAL], *pooled[-_SPATIAL:])
    return call.emit(relax.Tuple([call.reshape(values, shape), call.reshape(found, shape)]))


def _reads_positions(user: Any) -> bool:
    """Whether a node may read the positions, not the values alone."""
    return getattr(user.target, "__name__", "") != "getitem" or user.args[1] != 0


def _lowest(dtype: str) -> Any:
    """No value of the type is less."""
    return tirx.const(-inf, dtype) if "float" in dtype else tirx.min_value(dtype)


def _pair(number: Any) -> list[int]:
    """One number for each of two axes."""
    numbers = list(number) if isinstance(number, list | tuple) else [number]
    return numbers * _SPATIAL if len(numbers) == 1 else numbers
