"""Positions of the maxima of max pooling."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers import max_pool as pooling
from tvm_scatter.importers.shapes import shape_of

from .call import TorchCall
from .decompose import reads_more_than_first
from .each_axis import of_each_axis, pooled_axes
from .pooled_values import max_pooled


def max_pool(call: TorchCall) -> Any:
    """``max_pool2d_with_indices`` and that of 3-D. TVM's positions are zeros, and are floats."""
    axes = pooled_axes(call)
    known = all(isinstance(size, int) for size in shape_of(call["self"])[-axes:])
    # TVM counts windows that may reach beyond by a choice, which its fusion does not understand.
    if not reads_more_than_first(call.node) and (known or not call["ceil_mode"]):
        return relax.Tuple([max_pooled(call)])
    stride = call["stride"] or call["kernel_size"]
    numbers = (call["kernel_size"], stride, call["padding"], call["dilation"])
    results = pooling.max_pool(
        call.bb,
        call["self"],
        *(of_each_axis(each, axes) for each in numbers),
        ceil_mode=call["ceil_mode"],
        across_planes=False,
    )
    return call.emit(relax.Tuple(list(results)))
