"""Integer arithmetic that wraps around in code for a CPU.

TVM promises LLVM that nothing of 32 bits or more overflows, be it signed or unsigned, and LLVM
builds on that. In twice the width nothing does. What is cut off again costs nothing: LLVM sees that
nobody needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub
from typing import Any

import tvm_ffi
from tvm import tirx


def wrapping_add(left: Any, right: Any, dtype: str) -> Any:
    """The sum of two integers of a type, modulo the number of its values."""
    return _wrapping(add, left, right, dtype)


def wrapping_sub(left: Any, right: Any, dtype: str) -> Any:
    """The difference of two integers of a signed type, modulo the number of its values."""
    return _wrapping(sub, left, right, dtype)


def wrapping_mul(left: Any, right: Any, dtype: str) -> Any:
    """The product of two integers of a type, modulo the number of its values."""
    return _wrapping(mul, left, right, dtype)


def as_signed(index: Any) -> Any:
    """An index as int64; one from 2**63 on becomes negative, which is as bad."""
    if str(index.ty) == "uint64":
        # TVM takes a cast from an unsigned type to be never negative.
        return tirx.reinterpret("int64", index)
    return tirx.Cast("int64", index)


def _wrapping(operation: Callable[[Any, Any], Any], left: Any, right: Any, dtype: str) -> Any:
    kind = "uint" if dtype.startswith("u") else "int"
    wide = f"{kind}{2 * tvm_ffi.dtype(dtype).bits}"
    return tirx.Cast(dtype, operation(*(tirx.Cast(wide, value) for value in (left, right))))
