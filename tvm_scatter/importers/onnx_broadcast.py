"""ONNX's elementwise operators of tensors whose sizes may be equal at run time only.

TVM knows no more than the rank of such a result, and then cannot compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import is_one, same_shape, static_shape

from .onnx_stock import Node

#: The operators whose operands broadcast against each other.
NAMES = (
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum",
    "Where", "Xor",
)  # fmt: skip
#: Exponents up to it are products.
_MOST_FACTORS = 64


def broadcast(operator: str, node: Node) -> Any:
    """TVM's own converter of operands whose sizes are known to fit, after checks at run time."""
    bb = node.bb
    constant = all(isinstance(each, tvm.ir.GenericConst) for each in node.inputs)
    if constant or not all(map(_is_tensor, node.inputs)):
        return node.by_stock()
    tensors = _fitted(bb, operator, [bb.normalize(each) for each in node.inputs])
    dtype = str(tensors[0].ty.dtype)
    if operator == "Equal" and dtype == "bool":
        # TVM compares them as floats, which LLVM refuses.
        return relax.op.logical_not(bb.emit(relax.op.logical_xor(*tensors)))
    if operator == "Pow" and "int" in dtype:
        return _power(bb, *tensors)
    return node.by_stock(tensors)


def concat(node: Node) -> Any:
    """TVM's own converter of operands that are equally large along the other axes."""
    ranks = {int(getattr(each.ty, "ndim", -1)) for each in node.inputs if _is_tensor(each)}
    if not all(map(_is_tensor, node.inputs)) or len(ranks) != 1 or min(ranks) <= 0:
        return node.by_stock()
    axis = int(node.attributes.get("axis", 0)) % min(ranks)
    tensors = [node.bb.normalize(each) for each in node.inputs]
    return node.by_stock(_fitted(node.bb, "Concat", tensors, axis))


def _is_tensor(value: Any) -> bool:
    if not isinstance(value, relax.Expr) or tvm.ir.is_prim_expr(value):
        return False
    return not isinstance(value, relax.ShapeExpr)


def _fitted(bb: Any, operator: str, tensors: list[Any], but: int | None = None) -> list[Any]:
    """The tensors, after a check that sizes are equal of which none is known to be 1.

    Parameters
    ----------
    but : int, optional
        An axis along which sizes may be any, and those along the others must be equal.
    """
    if not all(isinstance(each.ty, relax.TensorType) for each in tensors):
        return tensors
    if any(static_shape(each) is None for each in tensors):
        return tensors
    shapes = [list(shape_of(each)) for each in tensors]
    common = common_sizes(shapes)
    return [
        with_sizes(bb, operator, tensor, shape, sizes_to_fit(shape, common, but))
        for tensor, shape in zip(tensors, shapes, strict=True)
    ]


def common_sizes(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The sizes of a result: numbers where there are any."""
    rank = max(map(len, shapes), default=0)
    common: list[Any] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if is_one(common[axis]) or (isinstance(size, int) and size != 1):
                common[axis] = size
    return common


def sizes_to_fit(shape: Sequence[Any], common: Sequence[Any], but: int | None = None) -> list[Any]:
    """What the sizes of an operand must be."""
    aligned = common[len(common) - len(shape) :]
    return [
        own if axis == but or (but is None and is_one(own)) else size
        for axis, (own, size) in enumerate(zip(shape, aligned, strict=True))
    ]


def with_sizes(
    bb: Any, operator: str, tensor: Any, shape: Sequence[Any], wanted: Sequence[Any]
) -> Any:
    """An operand, after a check at run time that its sizes are others."""
    # Of sizes that never fit TVM's own error tells.
    if same_shape(shape, wanted) or any(map(differ, shape, wanted)):
        return tensor
    what = f"operand of shape {text(shape)}"
    return bb.emit(expect_sizes(tensor, shape, wanted, shape=wanted, what=what, operator=operator))


def _power(bb: Any, base: Any, exponent: Any) -> Any:
    """Powers of integers: TVM has those of floats only."""
    dtype = str(base.ty.dtype)
    number = _number(exponent)
    if number is None or not 0 <= number <= _MOST_FACTORS or number != int(number):
        floats = (bb.emit(relax.op.astype(each, "float64")) for each in (base, exponent))
        return relax.op.astype(bb.emit(relax.op.power(*floats)), dtype)
    result, factor, left = bb.emit(relax.op.ones_like(base)), base, int(number)
    while left:
        result = bb.emit(relax.op.multiply(result, factor)) if left % 2 else result
        factor = bb.emit(relax.op.multiply(factor, factor))
        left //= 2
    return result


def _number(value: Any) -> Any:
    """What a constant of one element is."""
    if not isinstance(value, tvm.ir.GenericConst) or value.value.numpy().size != 1:
        return None
    return value.value.numpy().item()
