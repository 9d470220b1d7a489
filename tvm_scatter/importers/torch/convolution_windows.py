"""The windows of a convolution as matrices, so that its gradients are matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import number_of

from .call import TorchCall


@dataclass(frozen=True)
class Windows:
    """How a convolution moves its kernel over an image.

    The image has shape (batch, channels, \\*sizes), the results of the windows have shape (batch,
    filters, \\*places). A transposed convolution goes from results to images.
    """

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def matrix(self, call: TorchCall, image: Any, places: Sequence[Any]) -> Any:
        """The elements under windows: (groups, batch \\* places, channels / groups \\* taps)."""
        batch, channels, *sizes = shape_of(image)
        taps, own = prod(self.kernel), channels // self.groups
        rows = number_of((batch, *places))

        def windows(image: te.Tensor, rows: Any, *rest: Any) -> te.Tensor:
            sizes, places = rest[: len(self.kernel)], rest[len(self.kernel) :]

            def element(group: Any, row: Any, column: Any) -> Any:
                n, *place = _unravel(row, (None, *places))
                tap = _unravel(tirx.floormod(column, taps), self.kernel)
                at = [self._position(i, place[i], tap[i]) for i in range(len(tap))]
                inside = [each >= 0 for each in at]
                inside += [each < size for each, size in zip(at, sizes, strict=True)]
                channel = group * own + tirx.floordiv(column, taps)
                zero = tirx.const(0, str(image.dtype))
                return tirx.if_then_else(tirx.all(*inside), image(n, channel, *at), zero)

            return te.compute((self.groups, rows, own * taps), element, name="windows")

        return call.compute(windows, image, rows, *sizes, *places, name="convolution_windows")

    def image(self, call: TorchCall, matrix: Any, shape: Sequence[Any], places: Any) -> Any:
        """Add up a matrix of windows to an image: each element of all windows that it is under."""
        channels = shape[1]
        taps, own = prod(self.kernel), channels // self.groups

        def overlapped(matrix: te.Tensor, batch: Any, *rest: Any) -> te.Tensor:
            sizes, places = rest[: len(self.kernel)], rest[len(self.kernel) :]
            axes = [te.reduce_axis((0, extent), name="tap") for extent in self.kernel]

            def element(n: Any, channel: Any, *at: Any) -> Any:
                inside, row, tap = [], n, 0
                for i, axis in enumerate(axes):
                    start = at[i] + self.padding[i] - axis.var * self.dilation[i]
                    place = tirx.floordiv(start, self.stride[i])
                    inside += [start >= 0, tirx.floormod(start, self.stride[i]) == 0]
                    inside += [place < places[i]]
                    row, tap = row * places[i] + place, tap * self.kernel[i] + axis.var
                column = tirx.floormod(channel, own) * taps + tap
                value = matrix(tirx.floordiv(channel, own), row, column)
                zero = tirx.const(0, str(matrix.dtype))
                return te.sum(tirx.if_then_else(tirx.all(*inside), value, zero), axis=axes)

            return te.compute((batch, channels, *sizes), element, name="overlapped")

        return call.compute(
            overlapped, matrix, shape[0], *shape[2:], *places, name="convolution_image"
        )

    def results(self, call: TorchCall, results: Any) -> Any:
        """Results of windows as a matrix: (groups, filters / groups, batch \\* places)."""
        batch, filters, *places = shape_of(results)
        own = filters // self.groups
        parts = call.reshape(results, (batch, self.groups, own, number_of(places)))
        order = [1, 2, 0, 3]
        return call.reshape(
            call.emit(relax.op.permute_dims(parts, order)),
            (self.groups, own, number_of((batch, *places))),
        )

    def _position(self, axis: int, place: Any, tap: Any) -> Any:
        return place * self.stride[axis] - self.padding[axis] + tap * self.dilation[axis]


def _unravel(position: Any, extents: Sequence[Any]) -> list[Any]:
    """The coordinates of a position in an array of these extents; the first need not be known."""
    coordinates: list[Any] = []
    for extent in reversed(extents[1:]):
        coordinates.append(tirx.floormod(position, extent))
        position = tirx.floordiv(position, extent)
    return [position, *reversed(coordinates)]
