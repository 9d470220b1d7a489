"""Tensors of a function: declared like others, and how many bytes their elements have."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Var


def like(tensor: Var, **changed: Any) -> Var:
    """A tensor that is declared like another one.

    Parameters
    ----------
    **changed
        Arguments of ``tirx.decl_buffer`` in which it differs.
    """
    of = tensor.ty
    fields = {
        "shape": of.shape,
        "dtype": of.dtype,
        "name": tensor.name,
        "strides": of.strides,
        "elem_offset": of.elem_offset,
        "scope": of.storage_scope,
        "data_alignment": of.data_alignment,
        "offset_factor": of.offset_factor,
        "layout": of.layout,
    }
    return tirx.decl_buffer(**fields | changed)


def element_bytes(tensor: Var) -> int:
    """The bytes of an element; those of less than one count as one."""
    return -(-int(tvm.DataType(str(tensor.ty.dtype)).bits) // 8)
