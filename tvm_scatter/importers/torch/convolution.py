"""Convolutions and transposed ones that TVM answers in another type, and the gradients of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty

from .call import TorchCall
from .convolution_windows import Windows
from .each_axis import of_each_axis
from .elementwise import sum_type

_FORWARD = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_TRANSPOSED = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


def convolution(call: TorchCall) -> Any:
    """Convolutions in other types than single precision, in which TVM answers all."""
    data, weight, bias = call["input"], call["weight"], call["bias"]
    dtype = str(data.ty.dtype)
    axes = weight.ty.ndim - 2
    transposed = call.get("transposed", "transpose" in call.name)
    lacks = transposed and axes == 3
    if (dtype == "float32" and not lacks) or data.ty.ndim != weight.ty.ndim:
        return None
    how = {name: of_each_axis(call[name], axes) for name in ("stride", "padding", "dilation")}
    how["strides"] = how.pop("stride")
    if transposed:
        how["output_padding"] = of_each_axis(call["output_padding"], axes)
    wide = sum_type(dtype)
    operator = (_TRANSPOSED if transposed else _FORWARD)[axes]
    result = call.emit(operator(data, weight, groups=call["groups"], out_dtype=wide, **how))
    if bias is not None:
        of_channels = call.reshape(call.cast(bias, wide), (1, -1, *[1] * axes))
        result = call.emit(relax.op.add(result, of_channels))
    return call.cast(result, dtype)


def convolution_backward(call: TorchCall) -> Any:
    """``convolution_backward``: the gradients of input, weight and bias that are asked for."""
    gradient, data, weight = call["grad_output"], call["input"], call["weight"]
    dtype = str(data.ty.dtype)
    asked = call["output_mask"]
    shapes = [shape_of(data), shape_of(weight), (shape_of(gradient)[1],)]
    if any(map(is_empty, (gradient, data, weight))):
        return _tuple(call, [call.full(shape, 0, dtype) for shape in shapes])
    axes = data.ty.ndim - 2
    stride, padding, dilation = (
        of_each_axis(call[name], axes) for name in ("stride", "padding", "dilation")
    )
    windows = Windows(shape_of(weight)[2:], stride, padding, dilation, call["groups"])
    transposed = call["transposed"]
    image, results = (gradient, data) if transposed else (data, gradient)
    parts = [windows.results(call, results), None]
    if asked[1] or transposed:
        parts[1] = windows.matrix(call, image, shape_of(results)[2:])
    found: list[Any] = [None, None, None]
    if asked[0]:
        of_input = _to_results if transposed else _to_image
        found[0] = call.cast(of_input(call, windows, weight, parts, image, results), dtype)
    if asked[1]:
        found[1] = call.cast(call.reshape(_product(call, *parts), shapes[1]), dtype)
    if asked[2]:
        over = [0, *range(2, gradient.ty.ndim)]
        found[2] = call.emit(relax.op.sum(gradient, over))
    return _tuple(call, [call.full((), 0, dtype) if each is None else each for each in found])


def _to_image(
    call: TorchCall, windows: Windows, weight: Any, parts: Any, image: Any, results: Any
) -> Any:
    """The gradient of a convolution's input: the weights that met it, times their gradients."""
    rows = call.emit(relax.op.permute_dims(parts[0], [0, 2, 1]))
    matrix = _product(call, rows, _weights(call, windows, weight))
    return windows.image(call, matrix, shape_of(image), shape_of(results)[2:])


def _to_results(
    call: TorchCall, windows: Windows, weight: Any, parts: Any, image: Any, results: Any
) -> Any:
    """The gradient of a transposed convolution's input is a convolution."""
    filters = _weights(call, windows, weight)
    columns = call.emit(relax.op.permute_dims(parts[1], [0, 2, 1]))
    product = _product(call, filters, columns)
    batch, channels, *places = shape_of(results)
    groups = windows.groups
    apart = call.reshape(product, (groups, channels // groups, batch, *places))
    order = [2, 0, 1, *range(3, 3 + len(places))]
    return call.reshape(call.emit(relax.op.permute_dims(apart, order)), shape_of(results))


def _weights(call: TorchCall, windows: Windows, weight: Any) -> Any:
    """The weights as a matrix for each group: (groups, filters / groups, channels \\* taps)."""
    filters, *rest = shape_of(weight)
    columns = 1
    for extent in rest:
        columns *= extent
    return call.reshape(weight, (windows.groups, filters // windows.groups, columns))


def _product(call: TorchCall, left: Any, right: Any) -> Any:
    """A product for each group; halves are added up in single precision."""
    wide = "float64" if str(left.ty.dtype) == "float64" else "float32"
    return call.emit(relax.op.matmul(left, right, out_dtype=wide))


def _tuple(call: TorchCall, parts: Sequence[Any]) -> Any:
    return call.emit(relax.Tuple(list(parts)))
