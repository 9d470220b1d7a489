"""Integer arithmetic that wraps around on overflow, in code for a CPU.

TVM tells LLVM that integers of 32 bits or more never overflow, signed or unsigned, and LLVM relies
on that. So these functions compute in twice the width, or in ``wide``, where nothing overflows, and
truncate. That costs nothing: LLVM removes the unused upper half.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def wrapping_add(left: Any, right: Any, dtype: str, wide: str | None = None) -> Any:
    """The sum of two integers of type ``dtype``, wrapped around."""
    return _wrapping(add, left, right, dtype, wide)


def wrapping_sub(left: Any, right: Any, dtype: str, wide: str | None = None) -> Any:
    """The difference of two integers of the signed type ``dtype``, wrapped around."""
    return _wrapping(sub, left, right, dtype, wide)


def wrapping_mul(left: Any, right: Any, dtype: str, wide: str | None = None) -> Any:
    """The product of two integers of type ``dtype``, wrapped around."""
    return _wrapping(mul, left, right, dtype, wide)


def as_signed(index: Any) -> Any:
    """An index as int64; one from 2**63 on becomes negative, which is as bad."""
    if str(index.ty) == "uint64":
        # TVM takes a cast from an unsigned type to be never negative.
        return tirx.reinterpret("int64", index)
    return tirx.Cast("int64", index)


def kept_apart(extent: Any) -> Any:
    """An extent to compare an index with, of which TVM moves nothing to the index.

    It would make ``index + 1 < n`` of ``index < n - 1``, and the greatest index of all plus one is
    less than anything.
    """
    if isinstance(extent, int | tirx.IntImm | tvm.ir.Var):
        return extent
    return tirx.Cast("int64", tirx.Cast("uint64", extent))


def _wrapping(
    operation: Callable[[Any, Any], Any], left: Any, right: Any, dtype: str, wide: str | None
) -> Any:
    kind = "uint" if dtype.startswith("u") else "int"
    wide = wide or f"{kind}{2 * tvm_ffi.dtype(dtype).bits}"
    return tirx.Cast(dtype, operation(*(tirx.Cast(wide, value) for value in (left, right))))
