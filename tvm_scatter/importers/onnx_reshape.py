"""ONNX's ``Reshape``, checked where the run time decides whether the sizes fit.

TVM reads behind the end of a tensor whose new shape has more elements.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import number_of, same_shape
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import static_shape

from .onnx_sizes import expect_known_length
from .onnx_stock import Node


def reshape(node: Node) -> Any:
    """TVM's own converter, and a check of the number of elements."""
    expect_known_length("Reshape", node.inputs[1])
    data, result = node.inputs[0], node.bb.normalize(node.by_stock())
    if not all(isinstance(each.ty, relax.TensorType) for each in (data, result)):
        return result
    own, new = static_shape(data), static_shape(result)
    if own is None or new is None:
        return result
    counts = [number_of(own)], [number_of(new)]
    if same_shape(*counts):
        return result
    whole = expect_sizes(data, *counts, what="flattened input", operator="Reshape")
    return relax.op.reshape(node.bb.emit(whole), new)


def constant_of_shape(node: Node) -> Any:
    """TVM's own converter of ``ConstantOfShape``, which cannot compile a result of any rank."""
    expect_known_length("ConstantOfShape", node.inputs[0])
    return node.by_stock()
