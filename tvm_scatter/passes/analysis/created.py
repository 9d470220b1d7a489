"""Recognises tensors that are created without inputs, such as zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.lowering.inlined import RESHAPES
from tvm_scatter.ops.called import operator_of

CREATION = frozenset(
    f"relax.{name}"
    for name in ("arange", "eye", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
)
#: Creates a tensor that holds nothing yet.
ALLOCATION = "relax.builtin.alloc_tensor"


def is_created(value: Any) -> bool:
    """Whether an expression creates a tensor without reading any other."""
    return operator_of(value) in CREATION


def made_by(tensor: Any, values: Mapping[Any, Any]) -> Any:
    """The expression that makes a tensor, which may have got another shape afterwards.

    Parameters
    ----------
    values : mapping
        The expressions that variables are bound to.
    """
    value: Any = values.get(tensor)
    while operator_of(value) in RESHAPES:
        value = values.get(value.args[0])
    return value


def fill_value(value: Any) -> Any:
    """The scalar that fills a created tensor, or ``None`` if its elements may differ."""
    name = value.op.name if is_created(value) else ""
    if name in ("relax.full", "relax.full_like"):
        # The scalar may have another data type than the tensor.
        fill = value.args[1]
        return fill if str(fill.ty.dtype) == str(value.ty.dtype) else None
    for start, number in (("relax.zeros", 0), ("relax.ones", 1)):
        if name.startswith(start):
            return relax.const(number, str(value.ty.dtype))
    return None


def uniform_number(value: Any) -> Any:
    """The number that all elements of a constant or a created tensor are; ``None`` if unknown."""
    constant = value if isinstance(value, tvm.ir.GenericConst) else fill_value(value)
    if not isinstance(constant, tvm.ir.GenericConst):
        return None
    elements = np.asarray(constant.value.numpy()).reshape(-1)
    uniform = elements.size > 0 and bool((elements == elements[0]).all())
    return elements[0].item() if uniform else None
