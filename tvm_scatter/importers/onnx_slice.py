"""ONNX's ``Slice`` that reverses an axis of symbolic size, as torch.onnx writes ``flip``.

TVM computes the length of such a slice from its end, the least integer, and overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import static_shape

#: Ends beyond it are no places.
_FAR = 2**31 - 1


class Slice:
    """TVM's own converter, but for axes that are reversed.

    Parameters
    ----------
    stock : object
        TVM's converter.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""
        convert = self.stock.get_converter(opset)

        def with_reversed(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            slices = _slices(inputs)
            places = [] if slices is None else _reversed(inputs[0], slices)
            if slices is None or not places:
                return convert(bb, inputs, attributes, params)
            data = bb.emit(relax.op.flip(inputs[0], int(slices[2][places[0]])))
            rest = [np.delete(each, places[0]) for each in slices]
            if not rest[0].size:
                return data
            inputs = type(inputs)([data, *(relax.const(each, "int64") for each in rest)])
            return with_reversed(bb, inputs, attributes, params)

        return with_reversed


def _slices(inputs: Any) -> list[Any] | None:
    """Starts, ends, axes and steps of a tensor, if they are constant."""
    given = [x for x in inputs[1:5] if x is not None]
    constant = len(given) >= 2 and all(isinstance(x, tvm.ir.GenericConst) for x in given)
    if not constant or static_shape(inputs[0]) is None:
        return None
    starts, ends = (x.value.numpy() for x in given[:2])
    axes, steps = (inputs[at].value.numpy() if inputs[at] is not None else None for at in (3, 4))
    axes = np.arange(len(starts)) if axes is None else axes % len(shape_of(inputs[0]))
    return [starts, ends, axes, np.ones_like(starts) if steps is None else steps]


def _reversed(data: Any, slices: list[Any]) -> list[int]:
    """The places of slices that reverse an axis of symbolic size."""
    shape = shape_of(data)
    return [
        place
        for place, (start, end, axis, step) in enumerate(zip(*slices, strict=True))
        if step == -1
        and (start == -1 or start >= _FAR)
        and end <= -_FAR
        and not isinstance(shape[axis], int)
    ]
