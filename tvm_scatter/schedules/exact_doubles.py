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

from tvm_scatter.selection.backend import backend_of


def ExactDoubles() -> tvm.transform.Pass:
    """The pass: a constant that 15 digits do not tell is made of its bits."""

    def make(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        target = (function.attrs or {}).get("target")
        of_bits = "" if target is None else backend_of(target).double_of_bits
        if not of_bits:
            return function

        def exact(constant: tirx.FloatImm) -> Any:
            if not _is_rounded(constant):
                return constant
            [bits] = struct.unpack("<q", struct.pack("<d", float(constant.value)))
            return tirx.call_pure_extern("float64", of_bits, tirx.IntImm("int64", bits))

        return function.with_body(tvm_ffi.structural_map(function.body, (tirx.FloatImm, exact)))

    return tirx.transform.prim_func_pass(make, opt_level=0, name="ExactDoubles")


def _is_rounded(constant: tirx.FloatImm) -> bool:
    """Whether what TVM writes is another number."""
    value = float(constant.value)
    if constant.ty.dtype != "float64" or not math.isfinite(value):
        return False
    return float(f"{value:.15f}") != value
