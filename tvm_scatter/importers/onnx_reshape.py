"""ONNX's ``Reshape``, checked where the run time decides whether the sizes fit.

TVM reads behind the end of a tensor whose new shape has more elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import number_of, same_shape
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import static_shape


class Reshape:
    """TVM's own converter, and a check of the number of elements.

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

        def checked(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            data, result = inputs[0], bb.normalize(convert(bb, inputs, attributes, params))
            if not all(isinstance(each.ty, relax.TensorType) for each in (data, result)):
                return result
            own, new = static_shape(data), static_shape(result)
            if own is None or new is None:
                return result
            counts = [number_of(own)], [number_of(new)]
            if same_shape(*counts):
                return result
            whole = expect_sizes(data, *counts, what="flattened input", operator="Reshape")
            return relax.op.reshape(bb.emit(whole), new)

        return checked
