"""Tensors made from numbers alone: of one value, a sequence, or the positions of a triangle."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.problem.sizes import as_expression

from .arithmetic import common_type, is_representable
from .call import TorchCall, is_single
from .symbols import as_real, is_real


def full(call: TorchCall) -> Any:
    """``full`` of infinity, "not a number" or a number that wraps, which TVM cannot compile."""
    value = call["fill_value"]
    return _of_special(call, call["size"], common_type(value), value)


def full_like(call: TorchCall) -> Any:
    """``full_like`` of such a value."""
    data = call["self"]
    return _of_special(call, shape_of(data), str(data.ty.dtype), call["fill_value"])


def scalar_tensor(call: TorchCall) -> Any:
    """``scalar_tensor`` of such a value, or of a symbolic size."""
    value, otherwise = call["s"], common_type(0.5)
    if not isinstance(value, bool | int | float):
        return call.scalar(value, _asked_type(call, otherwise))
    return _of_special(call, (), otherwise, value)


def empty(call: TorchCall) -> Any:
    """``empty`` and its kin: values that are overwritten before a read."""
    otherwise = str(call["self"].ty.dtype) if "self" in call else common_type(0.5)
    return _filled(call, 0, call["size"], otherwise)


def empty_like(call: TorchCall) -> Any:
    """``empty_like``, whose type TVM ignores."""
    data = call["self"]
    return _filled(call, 0, shape_of(data), str(data.ty.dtype))


def triangle(call: TorchCall) -> Any:
    """``tril_indices`` and ``triu_indices``."""
    import torch

    rows, columns, offset = call["row"], call["col"], call["offset"]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise call.error(f"row and col must be constant; got {rows} and {columns}.")
    make = torch.tril_indices if call.name == "tril_indices" else torch.triu_indices
    # The schema's default is a number that stands for a type.
    dtype = call.node.kwargs.get("dtype") or torch.int64
    positions = make(rows, columns, offset, dtype=dtype)
    return call.emit(relax.const(positions.numpy(), str(dtype).removeprefix("torch.")))


def arange(call: TorchCall) -> Any:
    """``arange`` with a negative step or of integers between floats: TVM gets the sizes wrong.

    It rounds floats where the step is a size, and proves nothing of that.
    """
    start, end, step = limits = call.get("start", 0), call["end"], call.get("step", 1)
    known = all(isinstance(each, bool | int | float) for each in limits)
    real = any(map(is_real, limits))
    dtype = _asked_type(call, common_type(0.5) if real else "int64")
    integral = "int" in dtype
    multiple = None if real or isinstance(step, int) else _multiple(end - start, step)
    down = isinstance(step, int | float) and step < 0 and (known or not real)
    if multiple is None and not down and not (real and (integral or not known)):
        return None
    if dtype == "int64" and known:
        # PyTorch counts after it has rounded, for this type only.
        start, end, step = (int(each) for each in limits)
    count = multiple
    if count is None and known:
        count = math.ceil((end - start) / step)
    elif count is None:
        count = _count_of_reals(*limits) if real else (start - end - step - 1) // -step
    wide = dtype if integral else "float64"
    places = call.emit(relax.op.arange(0, count, 1, wide))
    first, step = (call.scalar(int(x) if known and integral else x, wide) for x in (start, step))
    values = relax.op.add(call.emit(relax.op.multiply(places, step)), first)
    return call.cast(call.emit(values), dtype)


def _count_of_reals(start: Any, end: Any, step: Any) -> Any:
    """How many steps there are between limits, of which some are expressions of sizes."""
    steps = (as_real(end) - as_real(start)) / as_real(step)
    whole = steps.astype("int64")
    return tirx.Select(whole.astype("float64") < steps, whole + 1, whole)


def _multiple(number: Any, step: Any) -> Any:
    """How many times the step a number is, if it is a product of the step and another size."""
    analyzer = Analyzer()
    for sign in (1, -1):
        product = analyzer.simplify(as_expression(number * sign))
        for count in (product.a, product.b) if isinstance(product, tirx.Mul) else ():
            if analyzer.can_prove_equal(count * step * sign, product):
                return count
    return None


def _of_special(call: TorchCall, shape: Any, otherwise: str, value: Any) -> Any:
    """A tensor of a value that TVM cannot fill it with; ``None`` for another one."""
    if not isinstance(value, bool | int | float) and "float" in str(value.ty):
        number = call.scalar(value, _asked_type(call, otherwise))
        return call.emit(relax.op.broadcast_to(number, list(shape)))
    beyond = isinstance(value, float) and not is_single(value)
    wraps = isinstance(value, int) and not is_representable(value, _asked_type(call, otherwise))
    return _filled(call, value, shape, otherwise) if beyond or wraps else None


def _filled(call: TorchCall, value: float, shape: Any, otherwise: str) -> Any:
    """A tensor of one value, in the type that the call asks for."""
    return call.full(shape, value, _asked_type(call, otherwise))


def _asked_type(call: TorchCall, otherwise: str) -> str:
    asked = call["dtype"]
    return otherwise if asked is None else str(asked).removeprefix("torch.")
