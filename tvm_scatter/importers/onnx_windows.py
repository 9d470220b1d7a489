"""ONNX's operators that put windows back into an image: ``Col2Im`` and ``MaxUnpool``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import number_of

from .onnx_sizes import sizes_in, with_shape


def col2im(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``Col2Im``: each element of a window is added to the element of the image that it covers."""
    blocks = inputs[0]
    image, window = (sizes_in(bb, operator, each) for each in inputs[1:3])
    axes, shape = len(image), shape_of(blocks)
    if len(shape) != 3 or len(window) != axes:
        raise ScatterError(
            f"{operator}: an input of shape {text(shape)}, an image_shape {text(image)} and a "
            f"block_shape {text(window)} must be of rank 3, and of as many sizes each."
        )
    strides, dilations = (attributes.get(name, [1] * axes) for name in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * (2 * axes))
    # What covers padding is added as well, and cut off below: no index is ever out of bounds.
    padded = [size + pads[i] + pads[axes + i] for i, size in enumerate(image)]
    counts = [
        (size - dilations[i] * (window[i] - 1) - 1) // strides[i] + 1
        for i, size in enumerate(padded)
    ]
    elements, windows = number_of(window), number_of(counts)
    batch, channels = shape[0], shape[1] // elements
    blocks = with_shape(bb, operator, "input", blocks, (batch, channels * elements, windows))

    def places(elements: Any, windows: Any, *sizes: Any) -> te.Tensor:
        window, counts, padded = sizes[:axes], sizes[axes:-axes], sizes[-axes:]

        def place(element: Any, at: Any) -> Any:
            corner, inside = _unravelled(at, counts), _unravelled(element, window)
            covered = [corner[i] * strides[i] + inside[i] * dilations[i] for i in range(axes)]
            return tirx.Cast("int64", _ravelled(covered, padded))

        return te.compute((elements, windows), place, name="place")

    sizes = (elements, windows, *window, *counts, *padded)
    result = ops.index_put(
        bb.emit(relax.op.zeros((batch, channels, number_of(padded)), str(blocks.ty.dtype))),
        [bb.emit_te(places, *sizes, primfunc_name_hint="place")],
        bb.emit(relax.op.reshape(blocks, (batch, channels, elements, windows))),
        [2],
        "add",
        wrap_negative=False,
        operator=operator,
    )
    result = bb.emit(relax.op.reshape(bb.emit(result), (batch, channels, *padded)))
    if not any(pads):
        return result
    ends = [pads[i] + size for i, size in enumerate(image)]
    # The slice is inside of the padded image, whatever the sizes are.
    return relax.op.strided_slice(
        result, list(range(2, 2 + axes)), list(pads[:axes]), ends, assume_inbound=True
    )


def max_unpool(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``MaxUnpool``; if a shape is given, there are zeros behind what was pooled."""
    data, indices = inputs[:2]
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides", [1] * len(kernel))
    pads = attributes.get("pads", [0] * (2 * len(kernel)))
    own = shape_of(data)
    pooled = [
        (size - 1) * strides[i] + kernel[i] - pads[i] - pads[len(kernel) + i]
        for i, size in enumerate(own[2:])
    ]
    pooled = [*own[:2], *pooled]
    indices = with_shape(bb, operator, "indices", indices, own)
    indices = bb.emit(relax.op.reshape(indices, (number_of(own),)))
    wanted = pooled
    if len(inputs) > 2 and inputs[2] is not None:
        wanted = sizes_in(bb, operator, inputs[2], len(own))
        if len(wanted) != len(pooled) or any(
            isinstance(most, int) and isinstance(size, int) and most < size
            for most, size in zip(wanted, pooled, strict=True)
        ):
            raise ScatterError(
                f"{operator}: an output_shape {text(wanted)} must not be smaller than the pooled "
                f"shape {text(pooled)}."
            )

        def places(indices: te.Tensor, *sizes: Any) -> te.Tensor:
            pooled, wanted = sizes[: len(own)], sizes[len(own) :]

            def place(i: Any) -> Any:
                at = _unravelled(indices(i), pooled)
                inside = tirx.all(*(each < most for each, most in zip(at, wanted, strict=True)))
                # An index that is out of range stays so.
                inside = tirx.all(inside, indices(i) >= 0)
                return tirx.Select(
                    inside,
                    tirx.Cast("int64", _ravelled(at, wanted)),
                    tirx.IntImm("int64", -1),
                )

            return te.compute(indices.shape, place, name="place")

        indices = bb.emit_te(places, indices, *pooled, *wanted, primfunc_name_hint="place")
    result = ops.scatter_elements(
        bb.emit(relax.op.zeros((number_of(wanted),), str(data.ty.dtype))),
        indices,
        bb.emit(relax.op.reshape(data, (number_of(own),))),
        wrap_negative=False,
        operator=operator,
    )
    return relax.op.reshape(bb.emit(result), wanted)


def _unravelled(position: Any, shape: Sequence[Any]) -> list[Any]:
    """The coordinates of a position in a flattened array; the first one is not limited."""
    behind = [prod(shape[i + 1 :]) for i in range(len(shape))]
    first = tirx.floordiv(position, behind[0])
    return [first] + [
        tirx.floormod(tirx.floordiv(position, after), size)
        for size, after in zip(shape[1:], behind[1:], strict=True)
    ]


def _ravelled(place: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The position in a flattened array of an element with given coordinates."""
    position = place[0]
    for at, size in zip(place[1:], shape[1:], strict=True):
        position = position * size + at
    return position
