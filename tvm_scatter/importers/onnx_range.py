"""ONNX's ``Range`` up to a size that is symbolic, and in steps that only the data say.

TVM's importer gives the result a length of its own, of which nothing more is known. It divides by
the step, and a CPU ends the process where it divides an integer by zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from .onnx_stock import Node

#: More elements than any memory holds, which is refused where the result is made.
_ENDLESS = 1 << 62


def arange(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``Range`` from one number in steps of another."""
    limit = inputs[1]
    start, step = (int(each.value.numpy().item()) for each in inputs[::2])
    # As of a shape, a size that is a single variable is not negative.
    count = limit - start
    if step != 1:
        count = tirx.floordiv(count + (step - 1 if step > 0 else step + 1), step)
    if not isinstance(count, tirx.Var):
        count = tirx.max(count, tirx.const(0, "int64"))
    if start == 0 and step == 1:
        return relax.op.arange(0, count, 1, "int64")
    places = bb.emit(relax.op.arange(0, count, 1, "int64"))
    spread = bb.emit(relax.op.multiply(places, relax.const(step, "int64")))
    return relax.op.add(spread, relax.const(start, "int64"))


def is_left_to_TVM(inputs: Sequence[Any], attributes: dict[str, Any]) -> bool:
    """Whether TVM's importer does it: all but a symbolic limit among integers."""
    start, limit, step = inputs
    constant = all(
        isinstance(each, tvm.ir.GenericConst) and each.ty.dtype == "int64" for each in (start, step)
    )
    symbolic = tvm.ir.is_prim_expr(limit) and not isinstance(limit, tirx.IntImm)
    return not (constant and symbolic and step.value.numpy().item() != 0)


def without_division_by_zero(node: Node) -> Any:
    """``Range`` whose step is an integer of a tensor: steps of zero come to no end."""
    start, limit, step = node.inputs
    integers = all(_is_integer(each) for each in (start, limit, step))
    if not integers or isinstance(step, tvm.ir.GenericConst):
        return node.by_stock()
    emit, dtype = node.bb.emit, str(step.ty.dtype)
    stands = emit(relax.op.equal(step, relax.const(0, dtype)))
    last = relax.const(min(_ENDLESS, np.iinfo(dtype).max), dtype)
    ends = emit(relax.op.where(stands, emit(relax.op.add(start, last)), limit))
    moves = emit(relax.op.where(stands, relax.const(1, dtype), step))
    return node.by_stock([start, ends, moves])


def _is_integer(value: Any) -> bool:
    is_tensor = isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)
    return is_tensor and "int" in str(value.ty.dtype)
