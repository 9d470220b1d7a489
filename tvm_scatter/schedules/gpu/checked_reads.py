"""Reads by an index that is checked, which are read in any case.

A branch around each of them keeps a compiler from reading several of them together. Where the index
is bad, the first row is read instead, and what is there is not taken.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of

_NAME = "tvm_scatter_taken"
#: A function, because TVM makes branches of choices that read.
_SOURCE = f"""
#ifndef TVM_SCATTER_TAKEN
#define TVM_SCATTER_TAKEN
template <class T>
__forceinline__ __device__ T {_NAME}(bool takes, T read, T other) {{ return takes ? read : other; }}
#endif
"""


def read_in_any_case(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function, in which a read that a check of its index guards is no branch."""

    def read(call: Any) -> Any:
        if function_name(call) != BRANCH:
            return call
        condition, value, other = call.args
        if not isinstance(value, tvm.ir.TensorLoad) or _reads(other) or not _is_check(condition):
            return call
        dtype = str(value.ty.dtype)
        if dtype == "bool":
            return call  # Tensors and values of this type differ in CUDA.
        if not all(isinstance(size, tirx.IntImm) and size.value > 0 for size in value.source.shape):
            return call
        at = [_or_first(condition, index) if _reads(index) else index for index in value.indices]
        loaded = tirx.BufferLoad(value.source, at)
        arguments = (tirx.Cast("bool", condition), loaded, tirx.Cast(dtype, other))
        return T.cuda.func_call(_NAME, *arguments, source_code=_SOURCE, return_type=dtype)

    return function.with_body(tvm_ffi.structural_map(function.body, (tvm.ir.Call, read)))


def _or_first(condition: Any, index: Any) -> Any:
    return tirx.if_then_else(condition, index, tirx.IntImm(str(index.ty.dtype), 0))


def _reads(expression: Any) -> bool:
    return any(True for _ in loads_of(expression))


def _is_check(condition: Any) -> bool:
    """Whether all that a condition compares is read: it guards no place of an axis."""
    if isinstance(condition, tirx.And):
        return _is_check(condition.a) and _is_check(condition.b)
    return _reads(condition)
