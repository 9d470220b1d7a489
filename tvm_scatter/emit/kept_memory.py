"""Memory that a virtual machine allocates in its first call and keeps.

It uses the mechanism by which TVM's virtual machine keeps allocations for CUDA graphs under a
number. So each virtual machine has its own memory for each place in the program that asks for some,
and frees it in the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T
from tvm_ffi import DLDeviceType

from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block

_NUMBER = "tvm_scatter.kept_memory"
_DATA, _SHAPE, _DEVICE_ID = 1, 2, 9  # Fields of a DLTensor, as TVM's code generator numbers them.


def page_locked(bb: relax.BlockBuilder, words: int) -> relax.Expr:
    """Emit page-locked memory: a GPU writes it, and the host reads it without a copy or a wait.

    An int64 tensor of ``words`` elements, zero before the first call.
    """
    zeros = relax.const(np.zeros(words, "int64"), "int64")
    # Page-locked memory serves all GPUs, whatever the number.
    host, first = tirx.IntImm("int64", int(DLDeviceType.kDLCUDAHost)), tirx.IntImm("int64", 0)
    type_ = relax.TensorType((words,), "int64")
    return _kept(
        bb,
        "allocate_page_locked",
        relax.op.call_pure_packed("vm.builtin.to_device", zeros, host, first, ty_args=type_),
        type_,
    )


def counter(bb: relax.BlockBuilder) -> relax.Expr:
    """Emit a counter in GPU memory: one int32 element, zero before the first call."""
    type_ = relax.TensorType((1,), "int32")
    zero = bb.add_func(_zero(), "zero")
    return _kept(bb, "allocate_counter", relax.op.call_tir(zero, [], type_), type_)


def data_of(tensor: Any) -> Any:
    """The data pointer of a tensor that is a bare handle of a PrimFunc."""
    return T.bind(T.tvm_struct_get(tensor, 0, _DATA, "handle"))


def words_of(tensor: Any, size: int) -> Any:
    """The elements of an int64 tensor that is a bare handle: a buffer of ``size`` words."""
    return T.decl_buffer((size,), "int64", data=data_of(tensor))


def sizes_of(tensor: Any, rank: int) -> Any:
    """The shape of a tensor that is a bare handle: an int64 buffer of ``rank`` elements."""
    shape = T.bind(T.tvm_struct_get(tensor, 0, _SHAPE, "handle"))
    return T.decl_buffer((rank,), "int64", data=shape)


def device_id_of(tensor: Any) -> Any:
    """The device number of a tensor that is a bare handle."""
    return T.bind(T.tvm_struct_get(tensor, 0, _DEVICE_ID, "int32"))


def _kept(
    bb: relax.BlockBuilder, name: str, allocation: relax.Expr, type_: relax.TensorType
) -> relax.Expr:
    """Emit an allocation that runs in the first call; later calls return the same tensor."""
    number = 1 + max(map(_number, bb.get().functions.values()), default=-1)
    memory = relax.Var("memory", type_)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(memory, allocation)])], memory)
    # The attribute keeps TVM from merging this function with an equal one.
    function = relax.Function([], body, type_, is_pure=True).with_attr(
        _NUMBER, tirx.IntImm("int64", number)
    )
    # TVM's own numbers count up from zero, so these count down.
    arguments = relax.Tuple([bb.add_func(function, name), tirx.IntImm("int64", -1 - number)])
    return bb.emit(
        relax.op.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc", arguments, ty_args=type_
        )
    )


def _number(function: Any) -> int:
    attrs = function.attrs
    return int(attrs[_NUMBER]) if attrs is not None and _NUMBER in attrs else -1


def _zero() -> tirx.PrimFunc:
    """A kernel that sets a counter to zero."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr(PRIM_FUNC_ATTRS)
            number = T.match_buffer(T.arg("number", T.handle()), (1,), "int32")
            with opaque_block():
                with T.launch_thread("blockIdx.x", 1), T.launch_thread("threadIdx.x", 1):
                    T.buffer_store(number, tirx.IntImm("int32", 0), [0])
    return builder.get()
