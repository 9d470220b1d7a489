"""Arithmetic of 8 and 16 bits on devices, whose results wrap around.

TVM writes CUDA for it as it is, and C computes it in 32 bits. A sum that is stored is cut to its
width there. One that is compared, divided or converted is not. Here the cut is written down.
Vectors need none: each of their elements is stored.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

#: What may have a result of more bits than its operands. The others read no more than they write.
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.LShift)
_UNARY = (tirx.BitwiseNot,)
#: The type to compute in. A product of two uint16 overflows int32, where C leaves it undefined.
_WIDE = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}


def WrapNarrowIntegers() -> tvm.transform.Pass:
    """The pass: each result of 8 or 16 bits is computed in 32 bits and cut to its width.

    It runs last. TVM's own passes would take the cuts out again, or not see through them.
    """

    def wrap(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        body = tvm_ffi.structural_map(function.body, [(_BINARY, _binary), (_UNARY, _unary)])
        return function.with_body(body)

    return tirx.transform.prim_func_pass(wrap, opt_level=0, name="WrapNarrowIntegers")


def _binary(value: Any) -> Any:
    wide = _WIDE.get(value.ty.dtype)
    if wide is None:
        return value
    operands = (tirx.Cast(wide, operand) for operand in (value.a, value.b))
    return tirx.Cast(value.ty.dtype, type(value)(*operands))


def _unary(value: Any) -> Any:
    wide = _WIDE.get(value.ty.dtype)
    if wide is None:
        return value
    return tirx.Cast(value.ty.dtype, type(value)(tirx.Cast(wide, value.a)))
