"""Maxima and minima, of which "not a number" is one wherever it occurs, as in PyTorch.

TVM compares, and a comparison with "not a number" is false: which operand it returns depends on
their order and on the target. Reductions compare integers here that have PyTorch's order.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import number_of

from .arithmetic import common_type, is_integral, is_tensor
from .call import TorchCall
from .ordering import is_float, keys, unknown, values_of

#: By whether the greatest is wanted.
_REDUCED = {True: relax.op.max, False: relax.op.min}


def larger(greatest: bool, call: TorchCall) -> Any:
    """``maximum`` and ``minimum``."""
    return _of_two(call, greatest, call["self"], call["other"])


def larger_number(greatest: bool, call: TorchCall) -> Any:
    """``fmax`` and ``fmin``: of a number and "not a number" they are the number."""
    left, right = _operands(call, call["self"], call["other"])
    if not is_float(str(left.ty.dtype)):
        return _of_two(call, greatest, left, right)
    unknowns = [unknown(call, each) for each in (left, right)]
    found = _of_two(call, greatest, left, right)
    found = call.emit(relax.op.where(unknowns[1], left, found))
    return call.emit(relax.op.where(unknowns[0], right, found))


def clamp(call: TorchCall) -> Any:
    """``clamp``, ``clamp_min``, ``clamp_max`` and ``hardtanh``."""
    low = call.get("min", call.get("min_val", None))
    high = call.get("max", call.get("max_val", None))
    data = call["self"]
    dtype = common_type(data, *(limit for limit in (low, high) if limit is not None))
    if "min_val" in call and is_integral(str(data.ty.dtype)):
        dtype, low, high = str(data.ty.dtype), int(low), int(high)
    result = call.cast(data, dtype)
    for greatest, limit in ((True, low), (False, high)):
        if limit is not None:
            result = _of_two(call, greatest, result, limit)
    return result


def relu(call: TorchCall) -> Any:
    """``relu``."""
    data = call["self"]
    zero = call.scalar(0, str(data.ty.dtype))
    return call.emit(relax.op.where(call.emit(relax.op.less(data, zero)), zero, data))


def reduced(greatest: bool, call: TorchCall) -> Any:
    """``amax``, ``amin``, and ``max`` and ``min`` of all."""
    data = call["self"]
    axes = [call.axis(dim, data.ty.ndim) for dim in call.get("dim", ())]
    return greatest_along(call, data, axes, greatest, call.get("keepdim", False))


def greatest_along(
    call: TorchCall, data: Any, axes: list[int], greatest: bool, keepdim: bool
) -> Any:
    """The greatest or least elements along some axes, or all, of which there must be one."""
    if data.ty.ndim == 0:
        return data
    data = call.expect_at_least(1, data, axes or range(data.ty.ndim))
    order = keys(call, data, last=greatest)
    best = _REDUCED[greatest](order, axes or None, keepdim)
    return values_of(call, call.emit(best), str(data.ty.dtype))


def position(greatest: bool, call: TorchCall) -> Any:
    """``argmax`` and ``argmin``: the first position."""
    data, dim = call["self"], call["dim"]
    shape = shape_of(data)
    if dim is None:
        data = call.expect_at_least(1, data, range(len(shape)))
        kept = [1] * len(shape)
        data, dim = call.reshape(data, (number_of(shape),)), 0
    else:
        data, dim = call.reshape(data, shape or (1,)), call.axis(dim, len(shape))
        data = call.expect_at_least(1, data, [dim])
        kept = [1 if axis == dim else size for axis, size in enumerate(shape)]
    _, positions = first_of(call, keys(call, data, last=greatest), dim, greatest)
    dropped = () if call["dim"] is None else [*shape[:dim], *shape[dim + 1 :]]
    return call.reshape(positions, kept if call["keepdim"] else dropped)


def along(greatest: bool, call: TorchCall) -> Any:
    """``max`` and ``min`` along a dimension: values and their first positions."""
    data, shape = call["self"], shape_of(call["self"])
    data = call.reshape(data, shape or (1,))
    dim = call.axis(call["dim"], len(shape))
    data = call.expect_at_least(1, data, [dim])
    best, positions = first_of(call, keys(call, data, last=greatest), dim, greatest)
    wanted = [*shape[:dim], *([1] if call["keepdim"] and shape else []), *shape[dim + 1 :]]
    both = (values_of(call, best, str(data.ty.dtype)), positions)
    return call.emit(relax.Tuple([call.reshape(each, wanted) for each in both]))


def first_of(call: TorchCall, order: Any, dim: int, greatest: bool) -> tuple[Any, Any]:
    """The greatest or least key along a dimension, and its first position; both keep it.

    TVM's ``argmax`` on GPUs counts on threads to run together that need not.
    """
    best = call.emit(_REDUCED[greatest](order, [dim], True))

    def places(order: te.Tensor, best: te.Tensor) -> te.Tensor:
        extent = order.shape[dim].astype("int64")

        def at(*place: Any) -> Any:
            chosen = best(*place[:dim], 0, *place[dim + 1 :])
            return tirx.Select(order(*place) == chosen, place[dim].astype("int64"), extent)

        return te.compute(order.shape, at, name="places")

    positions = call.compute(places, order, best, name="places")
    return best, call.emit(relax.op.min(positions, [dim], True))


def _operands(call: TorchCall, left: Any, right: Any) -> list[Any]:
    """Two tensors or numbers as tensors of their common type."""
    dtype = common_type(left, right)
    return [
        call.cast(each, dtype) if is_tensor(each) else call.scalar(each, dtype)
        for each in (left, right)
    ]


def _of_two(call: TorchCall, greatest: bool, left: Any, right: Any) -> Any:
    is_number = isinstance(right, int | float) and not math.isnan(right)
    left, right = _operands(call, left, right)
    dtype = str(left.ty.dtype)
    if dtype == "bool":
        operator = relax.op.logical_or if greatest else relax.op.logical_and
        return call.emit(operator(left, right))
    if not is_float(dtype):
        return call.emit((relax.op.maximum if greatest else relax.op.minimum)(left, right))
    if is_number:
        # The left one unless the right one is better, so also if the left one is not a number.
        better = (relax.op.less if greatest else relax.op.greater)(left, right)
        return call.emit(relax.op.where(call.emit(better), right, left))
    compare = relax.op.greater_equal if greatest else relax.op.less_equal
    # If the right one is not a number, the comparison is false, and it is chosen. Of zeros with
    # other signs it is the left one, as by PyTorch's ``clamp``.
    first = call.emit(relax.op.logical_or(unknown(call, left), compare(left, right)))
    return call.emit(relax.op.where(first, left, right))
