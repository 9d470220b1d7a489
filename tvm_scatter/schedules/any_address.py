"""Tensors of a caller, which may begin at any element in the memory of a CPU.

TVM takes parameters for tensors that it has allocated, at multiples of 64 bytes, and reads vectors
by instructions that end the process where that is not so. PyTorch passes views of rows.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.tirx.buffer import is_buffer_var


def AnyAddress() -> tvm.transform.Pass:
    """The pass: a parameter is taken to lie at a multiple of an element's bytes only."""

    def change(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        return with_any_address(function)

    return tirx.transform.prim_func_pass(change, opt_level=0, name="AnyAddress")


def with_any_address(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function itself if nothing is supposed of its parameters' addresses."""
    tensors = filter(is_buffer_var, function.params)
    instead = {each: _anywhere(each) for each in tensors if each.ty.data_alignment > _bytes(each)}
    if not instead:
        return function
    return tvm_ffi.structural_map(function, (Var, lambda each: instead.get(each, each)))


def _anywhere(tensor: Var) -> Var:
    return tirx.decl_buffer(
        tensor.ty.shape,
        tensor.ty.dtype,
        tensor.name,
        strides=tensor.ty.strides,
        elem_offset=tensor.ty.elem_offset,
        scope=tensor.ty.storage_scope,
        data_alignment=_bytes(tensor),
        offset_factor=tensor.ty.offset_factor,
        layout=tensor.ty.layout,
    )


def _bytes(tensor: Var) -> int:
    """The bytes of an element."""
    return max(int(tvm.DataType(str(tensor.ty.dtype)).bits) // 8, 1)
