"""Max pooling that also tells where the maxima are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.ops.shapes import number_of

from .shapes import shape_of
from .torch.ordering import key_of, later_of_unknown, value_of


def max_pool(
    bb: Any,
    data: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    *,
    ceil_mode: bool,
    across_planes: bool,
) -> tuple[Any, Any]:
    """The maxima of windows, and their positions.

    Parameters
    ----------
    data : relax.Expr
        A tensor whose last axes are pooled: as many as the kernel has, 2 or 3.
    kernel, stride, dilation : sequence of int
        One number for each of these axes.
    padding : sequence of int
        One number for each of these axes, or the numbers before all of them, then those behind.
    ceil_mode : bool
        Whether a last window may lie partly outside.
    across_planes : bool
        Whether positions count all elements of the tensor, not only those of their plane.

    Returns
    -------
    values, positions : relax.Expr
        Tensors of the pooled shape; positions are int64.
    """
    axes = len(kernel)
    own = shape_of(data)
    images = bb.emit(relax.op.reshape(data, (1, number_of(own[:-axes]), *own[-axes:])))
    operator = relax.op.nn.max_pool3d if axes == 3 else relax.op.nn.max_pool2d
    pool = operator(images, kernel, stride, padding, dilation, ceil_mode=ceil_mode)
    pooled = shape_of(bb.normalize(pool))
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
        """Integers in the order of each window's elements, the least in place of padding."""

        def element(channel: Any, *place: Any) -> Any:
            at = corner(place[-1], place[:-1])
            inside = [each >= 0 for each in at] + [x < n for x, n in zip(at, sizes, strict=False)]
            key = key_of(images(0, channel, *at))
            key = later_of_unknown(key, place[-1], str(data.ty.dtype))
            return tirx.if_then_else(tirx.all(*inside), key, tirx.min_value(key.ty))

        return te.compute((*sizes[axes:], prod(kernel)), element, name="windows")

    def positions(taps: te.Tensor, *extents: Any) -> te.Tensor:
        """Where the maxima are. Of equal values it is the first inside of the image."""

        def position(channel: Any, *place: Any) -> Any:
            flat = tirx.Cast("int64", channel) if across_planes else tirx.const(0, "int64")
            for at, extent in zip(corner(taps(channel, *place), place), extents, strict=True):
                flat = flat * extent + tirx.max(at, tirx.const(0, "int64"))
            return flat.astype("int64")

        return te.compute(taps.shape, position, name="positions")

    def of_keys(keys: te.Tensor) -> te.Tensor:
        dtype = str(data.ty.dtype)
        return te.compute(keys.shape, lambda *at: value_of(keys(*at), dtype), name="values")

    elements = bb.emit_te(windows, images, *sizes, primfunc_name_hint="windows")
    greatest = bb.emit(relax.op.max(elements, -1))
    values = bb.emit_te(of_keys, greatest, primfunc_name_hint="values")
    taps = bb.emit(relax.op.argmax(elements, -1))
    found = bb.emit_te(positions, taps, *own[-axes:], primfunc_name_hint="positions")
    shape = (*own[:-axes], *pooled[-axes:])
    return bb.emit(relax.op.reshape(values, shape)), bb.emit(relax.op.reshape(found, shape))
