"""Numbers that TVM does not look into: it neither cancels nor moves what they are computed from."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .computed_updates import function_name
from .wrapping import wrapping_add, wrapping_mul, wrapping_sub

#: The function that makes one type of the bits of another.
REINTERPRET = "reinterpret"
#: The integers that TVM and LLVM take never to overflow, and what they are computed by.
MAY_WRAP = ("int32", "int64")
RING = {tirx.Add: wrapping_add, tirx.Sub: wrapping_sub, tirx.Mul: wrapping_mul}


def kept(value: Any) -> Any:
    """A number as it is. For compilers behind TVM it costs nothing.

    An integer without any changes of its bits, since TVM cannot write the bits of a plain zero; a
    float by its bits.
    """
    dtype = value.ty.dtype
    if _is_integer(value):
        return tirx.BitwiseXor(value, tirx.IntImm(str(dtype), 0))
    return tirx.reinterpret(str(dtype), tirx.reinterpret(f"uint{dtype.bits}", value))


def kept_value(expression: Any) -> Any:
    """The number that an expression keeps; ``None`` if it is no such expression."""
    if isinstance(expression, tirx.BitwiseXor):
        changes = expression.b
        return expression.a if isinstance(changes, tirx.IntImm) and changes.value == 0 else None
    if not _reinterprets(expression) or not _reinterprets(expression.args[0]):
        return None
    value = expression.args[0].args[0]
    return value if value.ty.dtype == expression.ty.dtype else None


def _is_integer(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("int", "uint"))


def _reinterprets(expression: Any) -> bool:
    return isinstance(expression, tvm.ir.Call) and function_name(expression) == REINTERPRET


def with_wrapping(expression: Any) -> Any:
    """An expression of which integers wrap around in code for a CPU, too, where any is kept."""

    def of_kept(node: Any) -> Any:
        is_kept = any(kept_value(each) is not None for each in (node.a, node.b))
        return _wrapping(node, node.a, node.b) if is_kept and _may_wrap(node) else node

    kinds = [(kind, of_kept) for kind in RING]
    return tvm_ffi.structural_map(expression, [(tirx.BitwiseXor, _wrapped_one), *kinds])


def _wrapped_one(node: tirx.BitwiseXor) -> Any:
    value = kept_value(node)
    return node if value is None or not _may_wrap(value) else kept(_wrapped(value))


def _wrapped(value: Any) -> Any:
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, _wrapped(value.true_value), _wrapped(value.false_value))
    if type(value) not in RING:
        return value
    return _wrapping(value, _wrapped(value.a), _wrapped(value.b))


def _may_wrap(value: Any) -> bool:
    return str(value.ty.dtype) in MAY_WRAP


def _wrapping(node: Any, left: Any, right: Any) -> Any:
    # Of integers of 64 bits TVM tries each cast at each place, and needs minutes for ten in a row.
    return RING[type(node)](left, right, str(node.ty.dtype), wide="int128")
