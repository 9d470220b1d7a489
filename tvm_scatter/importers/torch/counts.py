"""``bincount``: a scatter that adds one, or a weight, to the count of each number."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_empty

from .call import TorchCall, constant
from .sizes import read_size


def bincount(call: TorchCall) -> Any:
    """``bincount``: as many counts as the greatest number asks for, at least ``minlength``."""
    numbers, weights, least = call["self"], call["weights"], call["minlength"]
    shape = shape_of(numbers)
    if len(shape) != 1:
        raise call.error(f"self must be a vector, but its rank is {len(shape)}.")
    dtype = "int64"
    values = constant(1, dtype)
    if weights is not None:
        # PyTorch adds up single precision as it is, everything else in double precision.
        dtype = "float32" if str(weights.ty.dtype) == "float32" else "float64"
        values = call.cast(call.expect_shape("weights", weights, shape), dtype)
    length = _length(call, numbers, least)
    counts = call.emit(relax.op.zeros((length,), dtype))
    if is_empty(numbers):
        return counts
    added = ops.index_put(
        counts, [numbers], values, [0], "add", wrap_negative=False, operator=call.origin
    )
    return call.emit(added)


def _length(call: TorchCall, numbers: Any, least: Any) -> Any:
    """One more than the greatest number, or the least length: only the run time knows it."""
    greatest = constant(-1, "int64")
    if not is_empty(numbers):
        greatest = call.emit(relax.op.max(call.cast(numbers, "int64")))

    def length(greatest: te.Tensor, least: Any) -> te.Tensor:
        wanted = tirx.Cast("int64", least)
        # One more than the greatest of all integers is negative.
        counted = tirx.min(greatest(), tirx.IntImm("int64", 2**63 - 2)) + 1
        return te.compute((1,), lambda _: tirx.max(counted, wanted), name="length")

    return read_size(call, call.compute(length, greatest, least, name="length"))
