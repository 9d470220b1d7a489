"""Elementwise operators between values of different types, where TVM does not promote as PyTorch.

TVM computes ``tensor + 0.5`` in the tensor's type, divides integers as integers, and ignores
``alpha``. A converter here returns ``None`` where TVM is right: the operands have one type already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax

from .call import TorchCall, constant
from .ordering import unknown
from .powers import integer_power
from .scaling import times

Operator = Callable[[Any, Any], Any]


def add(call: TorchCall) -> Any:
    """``add``, with ``alpha``. The sum of booleans is their "or"."""
    return _sum(call, relax.op.add, call["self"], call["other"])


def subtract(call: TorchCall) -> Any:
    """``sub``, with ``alpha``."""
    return _sum(call, relax.op.subtract, call["self"], call["other"])


def subtract_from(call: TorchCall) -> Any:
    """``rsub``: ``other - alpha * self``."""
    return _sum(call, relax.op.subtract, call["other"], call["self"], first="other")


def multiply(call: TorchCall) -> Any:
    """``mul``. The product of booleans is their "and"."""
    return binary(relax.op.multiply, relax.op.logical_and, call)


def binary(operator: Operator, of_booleans: Operator | None, call: TorchCall) -> Any:
    """An operator whose result has the common type of its operands, or is a comparison."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if dtype == "bool":
        return None if of_booleans is None else _apply(call, of_booleans, operands, dtype)
    return None if _uniform(operands, dtype) else _apply(call, operator, operands, dtype)


def compare(operator: Operator, call: TorchCall) -> Any:
    """A comparison. LLVM cannot compare booleans, so these become integers."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if dtype == "bool":
        return _apply(call, operator, operands, "int8")
    return None if _uniform(operands, dtype) else _apply(call, operator, operands, dtype)


def differ(call: TorchCall) -> Any:
    """``ne``, which is true of "not a number" and anything. In TVM it is false."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if is_integral(dtype):
        return compare(relax.op.not_equal, call)
    left, right = as_tensors(call, operands, dtype)
    either = call.emit(relax.op.logical_or(unknown(call, left), unknown(call, right)))
    return call.emit(relax.op.logical_or(either, relax.op.not_equal(left, right)))


def divide(call: TorchCall) -> Any:
    """``div``, not rounded down, and ``trunc`` of floats. The quotient of integers is a float."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    mode = call.get("rounding_mode", None)
    if mode == "trunc":
        return call.emit(relax.op.trunc(_quotient(call, operands, dtype)))
    if is_integral(dtype):
        dtype = default_float()
    # TVM gives a divisor that is a number a wrong type if the overload has a rounding mode.
    if "rounding_mode" not in call and _uniform(operands, dtype) and not _is_zero(operands[1]):
        return None
    return _quotient(call, operands, dtype)


def _quotient(call: TorchCall, operands: tuple[Any, Any], dtype: str) -> Any:
    left, right = operands
    if _is_zero(right):
        # TVM refuses to divide by it. An infinity of its sign gives the same.
        return _apply(call, relax.op.multiply, (left, math.copysign(math.inf, right)), dtype)
    return _apply(call, relax.op.divide, operands, dtype)


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def power(call: TorchCall) -> Any:
    """``pow``."""
    operands = call["self"], call["exponent"]
    dtype = common_type(*operands)
    if is_integral(dtype):
        return integer_power(call, *operands, dtype)
    if isinstance(operands[1], float) and operands[1] == 0.5 and dtype != "float16":
        # Of minus infinity and minus zero, the root is not the power. PyTorch takes it, but of
        # float16.
        return call.emit(relax.op.sqrt(call.cast(operands[0], dtype)))
    return None if _uniform(operands, dtype) else _apply(call, relax.op.power, operands, dtype)


def negative(call: TorchCall) -> Any:
    """``neg`` of unsigned integers, which wraps."""
    data = call["self"]
    dtype = str(data.ty.dtype)
    return _apply(call, relax.op.subtract, (0, data), dtype) if _is_unsigned(dtype) else None


def sign(call: TorchCall) -> Any:
    """``sign`` of booleans, which is themselves, and of unsigned integers: 1 of all but zero."""
    data = call["self"]
    dtype = str(data.ty.dtype)
    if dtype == "bool":
        return data
    if not _is_unsigned(dtype):
        return None
    return call.cast(call.emit(relax.op.greater(data, call.scalar(0, dtype))), dtype)


def shift(operator: Operator, call: TorchCall) -> Any:
    """``<<`` and ``>>`` of integers. By the width of their type or by less than 0, all is gone."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if not is_integral(dtype):
        raise call.error(f"only integers can be shifted, not values of type {dtype}.")
    bits = np.iinfo(dtype).bits
    if isinstance(operands[1], int) and 0 <= operands[1] < bits:
        return _apply(call, operator, operands, dtype)
    # Beyond the width of a type, shifts are undefined in TVM.
    data, count = as_tensors(call, operands, dtype)
    most = constant(bits - 1, dtype)
    beyond = call.emit(relax.op.greater(count, most))
    if not _is_unsigned(dtype):
        below = call.emit(relax.op.less(count, constant(0, dtype)))
        beyond = call.emit(relax.op.logical_or(beyond, below))
    shifted = call.emit(operator(data, call.emit(relax.op.where(beyond, most, count))))
    if operator is relax.op.right_shift and not _is_unsigned(dtype):
        return shifted
    return call.emit(relax.op.where(beyond, constant(0, dtype), shifted))


def where(call: TorchCall) -> Any:
    """``where`` between tensors of different types."""
    operands = call["self"], call["other"]
    dtype = common_type(*operands)
    if _uniform(operands, dtype):
        return None
    return call.emit(relax.op.where(call["condition"], *as_tensors(call, operands, dtype)))


def reciprocal(call: TorchCall) -> Any:
    """``reciprocal`` of integers."""
    data = call["self"]
    if not is_integral(str(data.ty.dtype)):
        return None
    return _apply(call, relax.op.divide, (1, data), default_float())


# Types


def common_type(*operands: Any) -> str:
    """The type in which PyTorch computes with tensors and numbers, such as ``"float32"``."""
    import torch

    common = reduce(_joined, map(_sample, operands))
    return str(torch.result_type(common, common)).removeprefix("torch.")


def default_float() -> str:
    """The type of a float that PyTorch makes from integers."""
    import torch

    return str(torch.get_default_dtype()).removeprefix("torch.")


def is_tensor(value: Any) -> bool:
    """Whether a value is a Relax tensor, not a number or a symbolic size."""
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)


def _joined(one: Any, other: Any) -> Any:
    """A tensor or number of the common type, with the larger rank of the two."""
    import torch

    if not isinstance(one, torch.Tensor) and not isinstance(other, torch.Tensor):
        return one + other
    ranks = [sample.ndim for sample in (one, other) if isinstance(sample, torch.Tensor)]
    return _tensor(max(ranks), torch.result_type(one, other))


def _sample(value: Any) -> Any:
    """A tensor without memory, or a number, whose type PyTorch promotes as that of ``value``."""
    import torch

    if is_tensor(value):
        return _tensor(min(value.ty.ndim, 1), getattr(torch, str(value.ty.dtype)))
    if isinstance(value, bool | int | float):
        return value
    # A symbolic size.
    return {"bool": True}.get(str(value.ty), 0.5 if "float" in str(value.ty) else 1)


def _tensor(rank: int, dtype: Any) -> Any:
    import torch

    return torch.empty((1,) * rank, dtype=dtype, device="meta")


def is_integral(dtype: str) -> bool:
    """Whether values of a type are integers or booleans."""
    return dtype.startswith(("int", "uint", "bool"))


def _is_unsigned(dtype: str) -> bool:
    return dtype.startswith("uint")


def is_representable(value: Any, dtype: str) -> bool:
    """Whether a value is a number that a type can hold. PyTorch wraps others; TVM refuses them."""
    if not isinstance(value, bool | int | float):
        return False
    if dtype == "bool" or not is_integral(dtype):
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= value <= limits.max)


def _uniform(operands: Any, dtype: str) -> bool:
    """Whether the tensors have this type, and the rest are numbers of it."""
    return all(
        str(each.ty.dtype) == dtype if is_tensor(each) else is_representable(each, dtype)
        for each in operands
    )


# Emitting


def _sum(call: TorchCall, operator: Operator, left: Any, right: Any, *, first: str = "self") -> Any:
    """``left`` plus or minus ``alpha * right``."""
    alpha = call.get("alpha", 1)
    dtype = common_type(left, right)
    if isinstance(alpha, int | float) and alpha == 1:
        if dtype == "bool":
            return _apply(call, relax.op.logical_or, (left, right), dtype)
        if first == "self" and _uniform((left, right), dtype):
            return None
        return _apply(call, operator, (left, right), dtype)
    if dtype == "bool":
        return _apply(call, relax.op.logical_or, (left, right), dtype) if alpha else left
    scaled = times(call, as_tensors(call, (right,), dtype)[0], alpha)
    return _apply(call, operator, (left, scaled), dtype)


def _apply(call: TorchCall, operator: Operator, operands: Any, dtype: str) -> Any:
    return call.emit(operator(*as_tensors(call, operands, dtype)))


def as_tensors(call: TorchCall, operands: Any, dtype: str) -> list[Any]:
    """The operands as tensors of one type."""
    return [
        call.cast(each, dtype) if is_tensor(each) else call.scalar(each, dtype) for each in operands
    ]
