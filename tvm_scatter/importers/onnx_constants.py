"""ONNX's operators of which TVM wants some inputs to be constant.

TVM takes defaults in the place of some inputs that are not, or fails without saying what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_scatter.errors import ScatterError

from .onnx_stock import constant_of

#: The inputs that must be constant, and their names in ONNX.
INPUTS: dict[str, dict[int, str]] = {
    "CumSum": {1: "axis"},
    "NonMaxSuppression": {
        2: "max_output_boxes_per_class", 3: "iou_threshold", 4: "score_threshold"
    },
    "Pad": {1: "pads", 2: "constant_value", 3: "axes"},
    "ReduceMax": {1: "axes"},
    "ReduceMean": {1: "axes"},
    "ReduceMin": {1: "axes"},
    "ReduceProd": {1: "axes"},
    "ReduceSum": {1: "axes"},
}  # fmt: skip
#: The opset that allows ``Pad`` to wrap. torch.onnx writes that in opset 18; onnxruntime runs it.
_WRAPS = 19


class OfConstants:
    """TVM's own converter, after a check that some inputs are constant.

    Parameters
    ----------
    operator : str
        Its name in ONNX.
    stock : object
        TVM's converter.
    """

    def __init__(self, operator: str, stock: Any) -> None:
        self.operator = operator
        self.stock = stock

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""

        def convert(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            wraps = self.operator == "Pad" and attributes.get("mode") == b"wrap"
            stock = self.stock.get_converter(max(opset, _WRAPS) if wraps else opset)
            given = list(inputs)
            for place, name in INPUTS[self.operator].items():
                if place < len(given) and given[place] is not None:
                    given[place] = self._constant(given[place], name, params)
            return stock(bb, type(inputs)(given), attributes, params)

        return convert

    def _constant(self, value: Any, name: str, params: Any) -> Any:
        constant = constant_of(value, params)
        if isinstance(constant, tvm.ir.GenericConst):
            return constant
        if isinstance(value, relax.ShapeExpr) and all(isinstance(x, tirx.IntImm) for x in value):
            return relax.const(np.array([int(x) for x in value]), "int64")
        raise ScatterError(
            f"{self.operator}: {name} is known at run time only, which is not supported; it must "
            "be constant."
        )
