"""A check at run time that a tensor to be overwritten shares no memory with other arguments.

A caller may pass one tensor twice, which is unknown at compile time. The check compares addresses
on the host and reads no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.addresses import emit_address
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.ops.shapes import SymbolTable


def check_separate(
    bb: relax.BlockBuilder, name: str, tensor: relax.Expr, others: Sequence[relax.Expr]
) -> relax.Expr:
    """Emit the check. It returns the tensor; use this result, so that the check runs first.

    Parameters
    ----------
    name : str
        The name of the tensor in the error.
    others : sequence of relax.Var
        The other arguments of the caller. Of a tuple all fields are compared.
    """
    tensors = [leaf for other in others for leaf in _leaves(bb, other)]
    if not tensors:
        return tensor
    func = bb.add_func(_check_func(name, tensor, tensors), "check_separate")
    return bb.emit(relax.op.call_tir_inplace(func, [tensor, *tensors], 0, tensor.ty))


def _leaves(bb: relax.BlockBuilder, value: Any) -> list[Any]:
    if isinstance(value.ty, relax.TupleType):
        fields = [bb.emit(relax.TupleGetItem(value, at)) for at in range(len(value.ty.fields))]
        return [leaf for field in fields for leaf in _leaves(bb, field)]
    return [value] if isinstance(value.ty, relax.TensorType) else []


def _check_func(name: str, tensor: Any, others: Sequence[Any]) -> tirx.PrimFunc:
    table = SymbolTable()
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.noalias": False})
            parameters = Parameters()
            shapes = [table.shape("donate", each) for each in (tensor, *others)]
            for at, (each, shape) in enumerate(zip((tensor, *others), shapes, strict=True)):
                parameters.add(f"tensor{at}", shape, str(each.ty.dtype))
            with parameters.in_body() as buffers:
                ranges = [
                    _range(buffer, parameters.size(shape), each)
                    for buffer, shape, each in zip(buffers, shapes, (tensor, *others), strict=True)
                ]
                start, end = ranges[0]
                for other, (low, high) in zip(others, ranges[1:], strict=True):
                    text = (
                        f"{name}: it is donated and shares memory with the argument "
                        f"{getattr(other, 'name', 'of a tuple')}; pass a copy of one."
                    )
                    # A text that is put together needs memory, which is the GPU's here.
                    with T.Assert(tirx.any(start >= high, low >= end), text, "ValueError"):
                        pass
    return builder.get()


def _range(buffer: Any, elements: Any, tensor: Any) -> tuple[Any, Any]:
    """The first address of a tensor and the first one behind it."""
    start = T.bind(emit_address(buffer))
    return start, start + tirx.Cast("int64", elements) * element_bytes(tensor)
