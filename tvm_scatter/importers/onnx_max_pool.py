"""ONNX's ``MaxPool`` with the positions of the maxima, which TVM's importer lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.errors import ScatterError

from .max_pool import max_pool as pool
from .shapes import shape_of


def max_pool(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``MaxPool`` with two results. Positions count the elements of the whole input."""
    (data,) = inputs
    kernel = list(attributes["kernel_shape"])
    axes, shape = len(kernel), shape_of(data)
    automatic = attributes.get("auto_pad", b"NOTSET").decode()
    if automatic not in ("NOTSET", "VALID") or attributes.get("storage_order", 0) or axes > 3:
        raise ScatterError(
            f"{operator}: positions of a kernel of {axes} axes with auto_pad {automatic} and "
            f"storage_order {attributes.get('storage_order', 0)} are not supported; it must be at "
            "most 3 axes, explicit pads, and storage_order 0."
        )
    steps, dilation = (list(attributes.get(x, [1] * axes)) for x in ("strides", "dilations"))
    pads = list(attributes.get("pads", [0] * (2 * axes)))
    if axes == 1:
        # A line is an image of one row.
        data = bb.emit(relax.op.expand_dims(data, 2))
        kernel, steps, dilation = ([1, *each] for each in (kernel, steps, dilation))
        pads = [0, pads[0], 0, pads[1]]
    ceil_mode = bool(attributes.get("ceil_mode", 0))
    results = pool(bb, data, kernel, steps, pads, dilation, ceil_mode=ceil_mode, across_planes=True)
    if len(shape) == 3:
        results = tuple(bb.emit(relax.op.squeeze(each, [2])) for each in results)
    return relax.Tuple(list(results))


def is_left_to_TVM(inputs: Sequence[Any], attributes: dict[str, Any]) -> bool:
    """Whether TVM's importer can do it: only the maxima are asked for."""
    return bool(attributes["tvm_custom"]["num_outputs"] == 1)
