"""Constants of double precision in CUDA.

TVM writes them with 15 digits behind the point. So 1e-16 is zero, and a third is not the nearest
number.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def ExactDoubles() -> tvm.transform.Pass:
    """The pass: a constant that 15 digits do not tell is made of its bits."""

    def make(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        target = (function.attrs or {}).get("target")
        if target is None or target.kind.name != "cuda":
            return function
        body = tvm_ffi.structural_map(function.body, (tirx.FloatImm, _exact))
        return function.with_body(body)

    return tirx.transform.prim_func_pass(make, opt_level=0, name="ExactDoubles")


def _exact(constant: tirx.FloatImm) -> Any:
    value = float(constant.value)
    if (
        constant.ty.dtype != "float64"
        or not math.isfinite(value)
        or float(f"{value:.15f}") == value
    ):
        return constant
    [bits] = struct.unpack("<q", struct.pack("<d", value))
    return tirx.call_pure_extern("float64", "__longlong_as_double", tirx.IntImm("int64", bits))
