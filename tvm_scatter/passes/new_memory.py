"""Scatters into a tensor that is only allocated."""

from __future__ import annotations

from tvm import relax

from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import unwritten

from .functions import Emit


def into_new_memory(call: ScatterCall, emit: Emit) -> relax.Expr:
    """The same scatter into new memory."""
    return call.replace(data=emit(unwritten(call.data.ty))).to_call()
