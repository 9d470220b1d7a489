"""The ``FLegalize`` of the operator that brings numbers to the host."""

from __future__ import annotations

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.host_stream import HostStream
from tvm_scatter.emit.kept_memory import device_id_of, page_locked, words_of
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block
from tvm_scatter.ops.host_numbers import ON_HOST
from tvm_scatter.selection.backend import backend_of

from .legalizations import put_in_front
from .target import target_of


def install_legalizations() -> None:
    """Install the legalization. Calling it again changes nothing."""
    put_in_front([ON_HOST], _legalize, ours=True)


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    [numbers] = call.args
    # What checks indices on a device tells the host of it by the same means.
    if backend_of(target_of(numbers)).device_check is None:
        return numbers
    [count] = map(int, numbers.ty.shape.values)
    func = bb.add_func(_copy(count), "numbers_to_host")
    arguments = [numbers, page_locked(bb, count)]
    return relax.op.call_tir_inplace(func, arguments, 1, relax.TensorType([count], "int64"))


def _copy(count: int) -> tirx.PrimFunc:
    """A kernel that writes to memory of the host, and a wait for it."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr(PRIM_FUNC_ATTRS)
            numbers, memory = T.arg("numbers", T.handle()), T.arg("memory", T.handle())
            with opaque_block():
                found, words = words_of(numbers, count), words_of(memory, count)
                with T.launch_thread("blockIdx.x", 1), T.launch_thread("threadIdx.x", count) as at:
                    T.buffer_store(words, found[at], [at])
                HostStream(device_id_of(numbers)).synchronize()
    return builder.get()
