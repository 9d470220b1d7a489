"""Values of integer tensors that are known at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_scatter.ops.shapes import static_shape

#: Tensors with more elements are taken as unknown: chains of writes have short index tensors.
MOST_VALUES = 65536
_VIEWS = ("relax.reshape", "relax.expand_dims", "relax.squeeze")


def known_values(tensor: Any, values: Mapping[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The elements of an integer tensor, or ``None`` where they depend on the input.

    Parameters
    ----------
    values : mapping
        The expression that each variable is bound to.
    """
    shape = numbers(static_shape(tensor))
    if shape is None or int(np.prod(shape, dtype=np.int64)) > MOST_VALUES:
        return None
    if isinstance(tensor, tvm.ir.GenericConst):
        return np.asarray(tensor.value.numpy())
    call = values.get(tensor) if isinstance(tensor, relax.Var) else tensor
    if isinstance(call, relax.Var | tvm.ir.GenericConst):
        return known_values(call, values)
    if not isinstance(call, relax.Call) or not hasattr(call.op, "name"):
        return None
    if call.op.name == "relax.arange":
        return _arange(call, shape)
    if call.op.name in _VIEWS:
        source = known_values(call.args[0], values)
        return None if source is None else source.reshape(shape)
    if call.op.name == "relax.broadcast_to":
        source = known_values(call.args[0], values)
        return None if source is None else np.broadcast_to(source, shape)
    if call.op.name == "relax.astype" and str(call.attrs.dtype) in ("int32", "int64"):
        source = known_values(call.args[0], values)
        return None if source is None else source.astype(str(call.attrs.dtype))
    return None


def numbers(shape: Any) -> tuple[int, ...] | None:
    """A shape as integers, or ``None`` if any size is symbolic."""
    if shape is None or not all(isinstance(size, int | tirx.IntImm) for size in shape):
        return None
    return tuple(int(size) for size in shape)


def _arange(call: relax.Call, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    bounds = [getattr(bound, "value", bound) for bound in call.args]
    if not all(isinstance(bound, int | tirx.IntImm) for bound in bounds):
        return None
    start, _, step = (int(bound) for bound in bounds)
    return start + step * np.arange(shape[0], dtype=str(call.ty.dtype))
