"""ONNX's operators that read by index: ``Gather``, ``GatherElements`` and ``GatherND``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.ops import read_ops


def gather(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``Gather``, as TVM's ``take`` with a mode of this package's."""
    data, indices = inputs
    axis = int(attributes.get("axis", 0))
    return relax.op.take(data, indices, axis, mode=operator)


def gather_elements(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``GatherElements``."""
    data, indices = inputs
    axis = int(attributes.get("axis", 0)) % data.ty.ndim
    return read_ops.gather_elements(data, indices, axis, wrap_negative=True, operator=operator)


def gather_nd(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``GatherND``."""
    data, indices = inputs
    return read_ops.gather_nd(
        data, indices, int(attributes.get("batch_dims", 0)), operator=operator
    )


def is_left_to_TVM(inputs: Sequence[Any], attributes: dict[str, Any]) -> bool:
    """Whether TVM's importer computes the result at import: from shapes or constants."""
    shapes = any(isinstance(each, relax.ShapeExpr) for each in inputs)
    return shapes or all(isinstance(each, tvm.ir.GenericConst) for each in inputs)
