"""Constants of type bfloat16 that are no finite numbers.

TVM writes ``inff`` and ``nanf`` for them into CUDA, which do not compile. Those of single precision
have names in CUDA.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def WidenInfinities() -> tvm.transform.Pass:
    """The pass: such a constant is one of single precision that is converted."""

    def widen(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        body = tvm_ffi.structural_map(function.body, (tirx.FloatImm, _widened))
        return function.with_body(body)

    return tirx.transform.prim_func_pass(widen, opt_level=0, name="WidenInfinities")


def _widened(constant: tirx.FloatImm) -> Any:
    if constant.ty.dtype != "bfloat16" or math.isfinite(constant.value):
        return constant
    return tirx.Cast("bfloat16", tirx.FloatImm("float32", constant.value))
