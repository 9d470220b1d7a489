"""Products of floats that are made of loop variables, threads or sizes.

TVM's analysis of integers follows a conversion to floats, since it knows the bounds of what is
converted. It cannot multiply bounds that are floats by what it knows nothing of, and stops with an
error. So conversions are hidden from it.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_HIDDEN = "tirx.reinterpret"


def HideFloatsOfPlaces() -> tvm.transform.Pass:
    """The pass: integers that are converted to floats are unknown to an analysis."""

    def hide(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        if not _multiplies_floats(function):
            return function
        return function.with_body(tvm_ffi.structural_map(function.body, (tirx.Cast, _hidden)))

    return tirx.transform.prim_func_pass(hide, opt_level=0, name="HideFloatsOfPlaces")


def ShowFloatsOfPlaces() -> tvm.transform.Pass:
    """The pass: what :func:`HideFloatsOfPlaces` has hidden stands there as before."""

    def show(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        return function.with_body(tvm_ffi.structural_map(function.body, (tvm.ir.Call, _shown)))

    return tirx.transform.prim_func_pass(show, opt_level=0, name="ShowFloatsOfPlaces")


def _multiplies_floats(function: tirx.PrimFunc) -> bool:
    found: list[Any] = []

    def visit(product: Any) -> None:
        if _is_float(product) and not isinstance(product.b, tirx.FloatImm):
            found.append(product)

    tvm_ffi.structural_walk(function.body, ((tirx.Mul, tirx.Div), visit))
    return bool(found)


def _hidden(conversion: tirx.Cast) -> Any:
    if not _is_float(conversion) or "int" not in str(conversion.value.ty.dtype):
        return conversion
    return tirx.call_intrin(str(conversion.ty.dtype), _HIDDEN, conversion)


def _shown(call: Any) -> Any:
    if getattr(call.op, "name", "") != _HIDDEN or not isinstance(call.args[0], tirx.Cast):
        return call
    conversion = call.args[0]
    return conversion if str(conversion.ty.dtype) == str(call.ty.dtype) else call


def _is_float(expression: Any) -> bool:
    return "float" in str(expression.ty.dtype)
