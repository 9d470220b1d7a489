"""``torchvision.ops.deform_conv2d``: a convolution whose taps are read beside their places."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import number_of

from .call import TorchCall
from .elementwise import sum_type


def deform_conv2d(call: TorchCall) -> Any:
    """``deform_conv2d``: a matrix of what the taps read, times that of the weight."""
    data, weight, bias = call["input"], call["weight"], call["bias"]
    dtype, wide = str(data.ty.dtype), sum_type(str(data.ty.dtype))
    images, channels, *size = shape_of(data)
    filters, _, *kernel = shape_of(weight)
    groups, taps = call["groups"], kernel[0] * kernel[1]
    steps = [_Steps(call, axis, kernel[at]) for at, axis in enumerate("hw")]
    wanted = [each.count(entries) for each, entries in zip(steps, size, strict=True)]
    beside = call["offset_groups"] * taps
    tensors = [call.expect_shape("offset", call["offset"], (images, 2 * beside, *wanted))]
    if call["use_mask"]:
        tensors.append(call.expect_shape("mask", call["mask"], (images, beside, *wanted)))

    def columns(data: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        def read(image: Any, row: Any, *at: Any) -> Any:
            channel, tap = tirx.floordiv(row, taps), tirx.floormod(row, taps)
            tap_of_axis = tirx.floordiv(tap, kernel[1]), tirx.floormod(tap, kernel[1])
            number = tirx.floordiv(channel * call["offset_groups"], channels) * taps + tap
            place = [
                steps[axis].place(at[axis], tap_of_axis[axis]).astype(wide)
                + offset(image, 2 * number + axis, *at).astype(wide)
                for axis in (0, 1)
            ]
            value = _between(data, image, channel, place)
            return value * mask[0](image, number, *at).astype(wide) if mask else value

        shape = [data.shape[0], channels * taps, *offset.shape[2:]]
        return te.compute(shape, read, name="columns")

    rows = (images, groups, channels // groups * taps, number_of(wanted))
    read = call.reshape(
        call.compute(columns, call.cast(data, wide), *tensors, name="columns"), rows
    )
    matrix = call.reshape(call.cast(weight, wide), (groups, filters // groups, rows[2]))
    product = call.emit(relax.op.matmul(matrix, read))
    result = call.reshape(product, (images, filters, *wanted))
    shift = call.reshape(call.cast(bias, wide), (filters, 1, 1))
    return call.cast(call.emit(relax.op.add(result, shift)), dtype)


class _Steps:
    """How a kernel moves along an axis.

    Parameters
    ----------
    axis : str
        ``"h"`` or ``"w"``.
    taps : int
        The size of the kernel.
    """

    def __init__(self, call: TorchCall, axis: str, taps: int) -> None:
        self.stride, self.padding = call[f"stride_{axis}"], call[f"pad_{axis}"]
        self.dilation, self.taps = call[f"dilation_{axis}"], taps

    def count(self, size: Any) -> Any:
        """How many places the kernel has."""
        return (size + 2 * self.padding - self.dilation * (self.taps - 1) - 1) // self.stride + 1

    def place(self, at: Any, tap: Any) -> Any:
        """Where a tap is."""
        return at * self.stride - self.padding + tap * self.dilation


def _between(data: te.Tensor, image: Any, channel: Any, place: list[Any]) -> Any:
    """The four pixels around a place, mixed. Those outside of the image are zero."""
    dtype = str(data.dtype)
    before = [tirx.floor(each) for each in place]
    shares = [each - first for each, first in zip(place, before, strict=True)]

    def pixel(*steps: int) -> Any:
        at = [first.astype("int64") + step for first, step in zip(before, steps, strict=True)]
        inside = [
            condition
            for each, size in zip(at, data.shape[2:], strict=True)
            for condition in (each >= 0, each < size)
        ]
        value = data(image, channel, *at)
        for step, share in zip(steps, shares, strict=True):
            value = value * (share if step else tirx.const(1, dtype) - share)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, dtype))

    return sum((pixel(down, right) for down in (0, 1) for right in (0, 1)), tirx.const(0, dtype))
