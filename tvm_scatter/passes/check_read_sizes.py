"""Checks of sizes that are read from tensors, or handed over as numbers: they may be any number.

TVM multiplies a size of 2^62 with that of an element, allocates the few bytes that are left, and
the function writes behind them. So each size of a tensor is checked before any tensor is allocated,
but only then: what a program asserts of the size gives a better error.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr import _update_type
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.error_text import raise_error
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block

from .analysis.shape_heap import ShapeHeap

#: No memory has more elements, and their bytes do not overflow.
MOST = 2**48


def CheckReadSizes() -> tvm.transform.Pass:
    """The pass, for modules whose sizes TVM has lowered to functions on the host."""

    def check(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        found = [
            (name, function, heap)
            for name, function in mod.functions.items()
            if isinstance(function, relax.Function)
            for heap in [ShapeHeap(function)]
            if any(heap.first_uses.values())
        ]
        if not found:
            return mod
        builder = relax.BlockBuilder(mod)
        for name, function, heap in found:
            calls = {
                use: _call(builder, _checks(sizes, heap, name.name_hint), heap)
                for use, sizes in heap.first_uses.items()
                if sizes
            }
            builder.update_func(name, _with_calls(function, calls))
        return builder.get()

    return tvm.transform.module_pass(check, opt_level=0, name="CheckReadSizes")


def _checks(sizes: dict[int, str], heap: ShapeHeap, name: str) -> tirx.PrimFunc:
    """A function on the host that raises an error if the heap holds what is no size."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            held = T.match_buffer(T.arg("heap", T.handle()), (heap.room,), "int64")
            with opaque_block():
                for place, size in sizes.items():
                    value = held[place]
                    with T.If(tirx.any(value < 0, value > MOST)), T.Then():
                        rule = "must be from 0 to 2^48, but is "
                        said = f"{name}: the size {size} of a tensor {rule}"
                        raise_error("ValueError", [said, value, "."])
    return builder.get()


def _call(builder: relax.BlockBuilder, function: tirx.PrimFunc, heap: ShapeHeap) -> Any:
    """A binding that calls a new function with the heap."""
    name = builder.add_func(function, "check_sizes")
    # TVM has given the others their symbols before.
    builder.update_func(name, function.with_attr("global_symbol", name.name_hint))
    call = builder.normalize(relax.Call(name, [heap.variable]))
    return relax.VarBinding(relax.Var("_", call.ty), call)


def _with_calls(function: relax.Function, calls: dict[Any, Any]) -> relax.Function:
    """A function with a call in front of each of some bindings."""
    blocks = []
    for block in function.body.blocks:
        bindings = []
        for binding in block.bindings:
            if binding.var in calls:
                bindings.append(calls[binding.var])
            bindings.append(binding)
        blocks.append(relax.BindingBlock(bindings))
    body = relax.SeqExpr(blocks, function.body.body)
    _update_type(body, function.body.ty)
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )
