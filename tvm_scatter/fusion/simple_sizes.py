"""Sizes in their simplest form, in which equal ones look the same.

TVM infers the shape of a concatenation as ``1 + n`` and computes a tensor of ``n + 1`` elements.
What was made for the one reads the other, and FuseTIR takes them for different tensors. So it does
with ``2 * n`` in the types of a group of functions and ``n * 2`` in one of its functions.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Expr, Var
from tvm.sym import Analyzer
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.tensors import like


def with_simple_sizes(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function itself if the sizes of its parameters have their simplest form already."""
    simple = {each: _simple_tensor(each) for each in function.params if _is_plain_tensor(each)}
    simple = {old: new for old, new in simple.items() if new is not old}
    if not simple:
        return function
    return tvm_ffi.structural_map(function, (Var, lambda variable: simple.get(variable, variable)))


def with_simple_types(group: relax.Function) -> relax.Function:
    """The Relax function with the sizes of all its tensors in their simplest form."""
    return tvm_ffi.structural_map(group, (relax.TensorType, _simple_type))


def _is_plain_tensor(parameter: Var) -> bool:
    """Whether a parameter is a tensor of which only the shape says how it lies in memory."""
    return is_buffer_var(parameter) and not parameter.ty.strides and parameter.ty.layout is None


def _simple_tensor(tensor: Var) -> Var:
    shape = _simple(tensor.ty.shape)
    if tvm_ffi.structural_equal(shape, tensor.ty.shape):
        return tensor
    return like(tensor, shape=shape)


def _simple_type(tensor: relax.TensorType) -> relax.TensorType:
    if not isinstance(tensor.shape, relax.ShapeExpr):
        return tensor
    shape = _simple(tensor.shape)
    if tvm_ffi.structural_equal(shape, tensor.shape.values):
        return tensor
    return relax.TensorType(shape, tensor.dtype, tensor.vdevice)


def _simple(shape: Iterable[Expr]) -> list[Expr]:
    return [Analyzer().simplify(size) for size in shape]
