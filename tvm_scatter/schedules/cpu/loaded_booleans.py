"""Booleans of memory in vectors, compared with zero.

In memory a boolean is a byte. Of a single one, TVM makes a bit as it reads it; a vector of them
stays one of bytes. LLVM then has no disjunction of it and a comparison, which is a vector of bits.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def with_compared_booleans(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, in whose vectors each boolean that is read is a bit."""
    body = tvm_ffi.structural_map(function.body, (tirx.For, _compared))
    return function if body.same_as(function.body) else function.with_body(body)


def _compared(loop: tirx.For) -> tirx.For:
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    return tvm_ffi.structural_map(loop, (tvm.ir.TensorLoad, _bit))


def _bit(load: Any) -> Any:
    if load.ty.dtype != "bool":
        return load
    return tirx.NE(tirx.Cast("int8", load), tirx.IntImm("int8", 0))
