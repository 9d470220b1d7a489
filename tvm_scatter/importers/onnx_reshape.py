"""ONNX's ``Reshape`` and ``ConstantOfShape``, to sizes that the run time knows, too.

TVM reads behind the end of a tensor whose new shape has more elements. It compiles neither operator
where the sizes are an input of the graph.
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import number_of, same_shape, static_shape
from tvm_scatter.problem.sizes import as_expression

from .onnx_sizes import as_tensor, expect_known_length, sizes_in
from .onnx_stock import Node


def reshape(node: Node) -> Any:
    """TVM's own converter, and a check of the number of elements."""
    expect_known_length("Reshape", node.inputs[1])
    if _is_read(node, 1):
        return _to_sizes_that_are_read(node)
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
    """TVM's own converter of ``ConstantOfShape``, to sizes that are known by name."""
    expect_known_length("ConstantOfShape", node.inputs[0])
    if not _is_read(node, 0):
        return node.by_stock()
    return node.by_stock([relax.ShapeExpr(sizes_in(node.bb, "ConstantOfShape", node.inputs[0]))])


def _is_read(node: Node, at: int) -> bool:
    """Whether the run time reads the sizes from a tensor."""
    sizes = node.constant(at)
    is_tensor = isinstance(sizes, relax.Expr) and isinstance(sizes.ty, relax.TensorType)
    return is_tensor and not isinstance(sizes, tvm.ir.GenericConst)


def _to_sizes_that_are_read(node: Node) -> Any:
    bb, given = node.bb, node.inputs[1]
    data = as_tensor(bb, node.inputs[0])
    own = shape_of(data)
    keeps = not node.attributes.get("allowzero", 0)
    total, kept = as_expression(number_of(own)), map(as_expression, own if keeps else ())
    wanted = bb.emit_te(_wanted, given, total, *kept, primfunc_name_hint="new_shape")
    sizes = sizes_in(bb, "Reshape", wanted)
    counts = [total], [number_of(sizes)]
    whole = expect_sizes(data, *counts, what="flattened input", operator="Reshape")
    return relax.op.reshape(bb.emit(whole), sizes)


def _wanted(given: te.Tensor, total: Any, *own: Any) -> te.Tensor:
    """The sizes that are meant: of 0 the input's own, and of a single -1 what is left."""
    zero, one = (tirx.const(number, "int64") for number in (0, 1))
    count = int(given.shape[0])

    def size(at: int) -> Any:
        number = tirx.Cast("int64", given[at])
        return tirx.Select(number == zero, own[at], number) if at < len(own) else number

    sizes = [size(at) for at in range(count)]
    others = reduce(mul, (tirx.Select(each == -1, one, each) for each in sizes), one)
    single = sum((tirx.Select(each == -1, one, zero) for each in sizes), zero) == one
    # Any other -1 stays, and is refused as a size.
    left = tirx.truncdiv(total, tirx.max(others, one))
    rest = tirx.Select(tirx.all(single, others > zero), left, tirx.const(-1, "int64"))

    def element(at: Any) -> Any:
        found = sizes[0]
        for place in range(1, count):
            found = tirx.Select(at == place, sizes[place], found)
        return tirx.Select(found == -1, rest, found)

    return te.compute((count,), element, name="new_shape")
