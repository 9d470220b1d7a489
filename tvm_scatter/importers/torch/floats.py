"""Operators that compute a float from floats, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, topi

from tvm_scatter.problem.reductions import HALVES

from .arithmetic import as_tensors, common_type, default_float, is_integral
from .call import TorchCall

Function = Callable[..., Any]


def elementwise(function: Function, call: TorchCall, *names: str) -> Any:
    """A function of floats, elementwise. Integers become floats first.

    Parameters
    ----------
    function : callable
        Takes an expression of type float32 or float64 for each operand, and returns one. 16-bit
        floats are computed by single precision.
    call : TorchCall
        The operator.
    *names : str
        Its operands: tensors or numbers.
    """
    operands = [call[name] for name in names]
    dtype = common_type(*operands)
    dtype = default_float() if is_integral(dtype) else dtype
    return of_type(function, call, operands, dtype)


def of_type(function: Function, call: TorchCall, operands: Sequence[Any], dtype: str) -> Any:
    """A function of floats, whose operands and result have the given type."""
    tensors = as_tensors(call, operands, dtype)
    shape = relax.ShapeExpr(call.broadcast(*tensors))
    wide = "float32" if dtype in HALVES else dtype

    def computed(shape: Any, *tensors: te.Tensor) -> te.Tensor:
        full = [topi.broadcast_to(each, shape) for each in tensors]

        def element(*at: Any) -> Any:
            result = function(*(each(*at).astype(wide) for each in full))
            return result if str(result.ty) == "bool" else result.astype(dtype)

        return te.compute(full[0].shape, element, name="element")

    return call.compute(computed, shape, *tensors, name=call.name)
