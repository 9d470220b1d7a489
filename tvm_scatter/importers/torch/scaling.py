"""Products with a number, of which zero makes "not a number" of infinity."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from tvm_scatter.problem.reductions import HALVES

from .call import TorchCall
from .functions import times_zero
from .ordering import is_float


def times(call: TorchCall, tensor: Any, factor: Any) -> Any:
    """The product in the tensor's type. TVM takes that with a constant of zero for zero."""
    dtype = str(tensor.ty.dtype)
    is_zero = isinstance(factor, bool | int | float) and factor == 0
    if not is_zero or not is_float(dtype):
        return call.emit(relax.op.multiply(tensor, call.scalar(factor, dtype)))

    def product(values: te.Tensor) -> te.Tensor:
        zero = float(factor)
        return te.compute(values.shape, lambda *at: times_zero(zero, values(*at)), name="zeros")

    wide = call.cast(tensor, "float32" if dtype in HALVES else dtype)
    return call.cast(call.compute(product, wide, name="zeros"), dtype)
