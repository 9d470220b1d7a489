"""Scatters into a tensor that is only allocated."""

from __future__ import annotations

from tvm import relax

from tvm_scatter.ops.scatter_call import ScatterCall

from .functions import Emit


def new_memory(type_: relax.TensorType) -> relax.Expr:
    """A tensor with no values yet."""
    return relax.op.builtin.alloc_tensor(type_.shape, str(type_.dtype), 0)


def into_new_memory(call: ScatterCall, emit: Emit) -> relax.Expr:
    """The same scatter into new memory."""
    return call.replace(data=emit(new_memory(call.data.ty))).to_call()
