"""Memory that a GPU writes and the host reads, without a copy and without waiting for a stream.

It is page-locked, and allocated at the first call. TVM's virtual machine keeps under a number what
a function allocates once for CUDA graphs; that serves here too. So each virtual machine has memory
of its own, for each place in the program that asks for some, and frees it when it goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.tirx.script import builder as T
from tvm_ffi import DLDeviceType

_NUMBER = "tvm_scatter.page_locked"
_DATA, _DEVICE_ID = 1, 9  # fields of a DLTensor, as TVM's code generator numbers them


def page_locked(bb: relax.BlockBuilder, words: int) -> relax.Expr:
    """Emit the memory of this place in the program: int64, zero before the first call."""
    number = 1 + max(map(_number, bb.get().functions.values()), default=-1)
    allocate = bb.add_func(_allocation(words, number), "allocate_page_locked")
    # TVM's own numbers count up from zero.
    arguments = relax.Tuple([allocate, tirx.IntImm("int64", -1 - number)])
    return bb.emit(
        relax.op.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc", arguments, ty_args=_type(words)
        )
    )


def words_of(tensor: Any, size: int) -> Any:
    """The words of a tensor that a PrimFunc takes as a bare handle: an int64 buffer."""
    data = T.bind(T.tvm_struct_get(tensor, 0, _DATA, "handle"))
    return T.decl_buffer((size,), "int64", data=data)


def device_id_of(tensor: Any) -> Any:
    """The number of the device that such a tensor lies on."""
    return T.bind(T.tvm_struct_get(tensor, 0, _DEVICE_ID, "int32"))


def _type(words: int) -> relax.TensorType:
    return relax.TensorType((words,), "int64")


def _allocation(words: int, number: int) -> relax.Function:
    """A function that is called once; the number keeps it from being merged with another's."""
    zeros = relax.const(np.zeros(words, "int64"), "int64")
    # Page-locked memory serves all GPUs, whatever the number.
    host, first = tirx.IntImm("int64", int(DLDeviceType.kDLCUDAHost)), tirx.IntImm("int64", 0)
    memory = relax.Var("memory", _type(words))
    copy = relax.op.call_pure_packed(
        "vm.builtin.to_device", zeros, host, first, ty_args=_type(words)
    )
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(memory, copy)])], memory)
    function = relax.Function([], body, _type(words), is_pure=True)
    return function.with_attr(_NUMBER, tirx.IntImm("int64", number))


def _number(function: Any) -> int:
    attrs = function.attrs
    return int(attrs[_NUMBER]) if attrs is not None and _NUMBER in attrs else -1
