"""ONNX's ``Range`` up to a size that is symbolic.

TVM's importer gives the result a length of its own, of which nothing more is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, tirx


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
