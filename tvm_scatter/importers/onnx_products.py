"""ONNX's products of matrices whose sizes may be equal at run time only.

TVM adds up as many products as one of the matrices has columns, and reads behind the end of the
other where that is smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_one, static_shape

from .onnx_broadcast import common_sizes, sizes_to_fit, with_sizes
from .onnx_stock import Node


def matmul(node: Node) -> Any:
    """``MatMul``: the columns of one operand are the rows of the other, and batches broadcast."""
    shapes = _shapes(node.inputs)
    if shapes is None or not all(shapes):
        return node.by_stock()
    left, right = shapes
    inner = _number_of(left[-1], right[-2 if len(right) > 1 else 0])
    batches = left[:-2], right[:-2]
    common = common_sizes(batches)
    first, second = (sizes_to_fit(each, common) for each in batches)
    wanted = [*first, *left[-2:-1], inner], [*second, *_with_rows(right, inner)]
    operands = zip(node.inputs, shapes, wanted, strict=True)
    return node.by_stock([with_sizes(node.bb, "MatMul", *each) for each in operands])


def gemm(node: Node) -> Any:
    """``Gemm``: a product of two matrices, and a matrix that broadcasts to it."""
    given = [each for each in (node.inputs[at] for at in range(3)) if each is not None]
    shapes = _shapes(given)
    if shapes is None or any(len(shape) != 2 for shape in shapes[:2]):
        return node.by_stock()
    left, right = shapes[:2]
    row, column = int(bool(node.attributes.get("transA"))), int(bool(node.attributes.get("transB")))
    inner = _number_of(left[1 - row], right[column])
    sizes = [left[row], right[1 - column]]
    wanted = [list(left), list(right), *([] for _ in shapes[2:])]
    wanted[0][1 - row], wanted[1][column] = inner, inner
    for shape in shapes[2:]:
        pairs = zip(shape, sizes[2 - len(shape) :], strict=True)
        wanted[2] = [own if is_one(own) else size for own, size in pairs]
    operands = zip(given, shapes, wanted, strict=True)
    checked = [with_sizes(node.bb, "Gemm", *each) for each in operands]
    return node.by_stock([*checked, *[None] * (3 - len(checked))])


def _shapes(tensors: Sequence[Any]) -> list[list[Any]] | None:
    """The shapes, if all are known."""
    known = all(
        isinstance(getattr(each, "ty", None), relax.TensorType) and static_shape(each) is not None
        for each in tensors
    )
    return [list(shape_of(each)) for each in tensors] if known else None


def _number_of(left: Any, right: Any) -> Any:
    """The size that both must have: a number if there is one."""
    return right if isinstance(right, int) else left


def _with_rows(shape: list[Any], rows: Any) -> list[Any]:
    return [rows, shape[-1]] if len(shape) > 1 else [rows]
