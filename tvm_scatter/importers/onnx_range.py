"""ONNX's ``Range`` of integers, which is right up to the ends of int64.

TVM's importer gives the result a length of its own, of which nothing more is known. It divides by
the step, and a CPU ends the process where it divides an integer by zero. Its distance between two
numbers overflows where these are far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.expectations import NOT_ZERO, expect_numbers

from .onnx_range_terms import count_and_step, elements
from .onnx_sizes import as_tensor, sizes_in

#: No memory has more elements.
_MOST = 2**48
#: As many steps of that are no farther than int64 goes.
_SHORT = 2**14


def arange(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``Range`` from one number in steps of another."""
    start, limit, step = map(_known, inputs)
    dtype = next((str(each.ty.dtype) for each in inputs if not _is_size(each)), "int64")
    if step is not None and step == 0:
        raise ScatterError("Range: the step is 0; it must not be 0.")
    if start is not None and limit is not None and step is not None:
        return _constant(range(start, limit, step), dtype)
    near = all(number is not None and abs(number) <= _MOST for number in (start, step))
    if near and _is_size(inputs[1]) and dtype == "int64":
        return _up_to_size(bb, start, inputs[1], step)
    return _of_tensors(bb, inputs, step, dtype)


def is_left_to_TVM(inputs: Sequence[Any], attributes: dict[str, Any]) -> bool:
    """Whether TVM's importer does it: floats, in steps that are not known to be zero."""
    of_integers = all(_is_size(each) or "int" in str(each.ty.dtype) for each in inputs)
    return not of_integers and _known(inputs[2]) != 0


def _known(value: Any) -> Any:
    """The number that a constant holds, or ``None``."""
    if isinstance(value, tirx.IntImm):
        return int(value)
    return value.value.numpy().item() if isinstance(value, tvm.ir.GenericConst) else None


def _is_size(value: Any) -> bool:
    return isinstance(value, relax.ShapeExpr) or tvm.ir.is_prim_expr(value)


def _constant(numbers: range, dtype: str) -> Any:
    # The length of what is longer than int64 goes would be an error of Python's.
    if numbers[_MOST:]:
        raise ScatterError(
            f"Range: from {numbers.start} to {numbers.stop} in steps of {numbers.step} there are "
            "more than 2^48 numbers; there must be fewer."
        )
    return relax.const(np.fromiter(numbers, "int64", len(numbers)), dtype)


def _up_to_size(bb: Any, start: int, limit: Any, step: int) -> Any:
    """A range whose length is a formula of sizes."""
    if isinstance(limit, relax.ShapeExpr):
        [limit] = limit
    # As of a shape, a size that is a single variable is not negative.
    count = limit - start
    if step != 1:
        count = tirx.floordiv(count + (step - 1 if step > 0 else step + 1), step)
    if not isinstance(count, tirx.Var):
        count = tirx.max(count, tirx.const(0, "int64"))
    if start == 0 and step == 1:
        return relax.op.arange(0, count, 1, "int64")
    return _in_steps(bb, count, step, relax.const(start, "int64"))


def _in_steps(bb: Any, count: Any, step: int, start: Any) -> Any:
    """A range in short steps, in operators of which later passes know that it ascends."""
    numbers = bb.emit(relax.op.arange(0, count, 1, "int64"))
    if step != 1:
        numbers = bb.emit(relax.op.multiply(numbers, relax.const(step, "int64")))
    return relax.op.add(numbers, start)


def _of_tensors(bb: Any, inputs: Sequence[Any], step: int | None, dtype: str) -> Any:
    """A range of a length that the run time computes."""
    start, limit, by = (_as_number(bb, each) for each in inputs)
    found = bb.emit_te(count_and_step, start, limit, by, primfunc_name_hint="range_length")
    count, moves = sizes_in(bb, "Range", found)
    if step is not None and abs(step) <= _SHORT:
        return relax.op.astype(bb.emit(_in_steps(bb, count, step, start)), dtype)
    if step is None:
        by = bb.emit(expect_numbers(by, moves, NOT_ZERO, what="the step", operator="Range"))
    numbers = bb.emit_te(elements, start, by, count, primfunc_name_hint="range")
    return relax.op.astype(numbers, dtype)


def _as_number(bb: Any, value: Any) -> Any:
    """A size or a tensor of one element as int64 of rank 0."""
    whole = bb.emit(relax.op.astype(as_tensor(bb, value), "int64"))
    return bb.emit(relax.op.reshape(whole, ()))
