"""Gives the factors of a product a tensor each.

The product of a matrix with itself, fused with what follows it, reads one tensor at two places, of
which TVM names one. Schedules see a single factor then, and cannot bring it to shared memory twice.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_scatter.emit.computed_updates import loads_of

from .vectors_first import changed_block, element_region


def with_own_factors(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, in which a product of a tensor with itself has a copy of it as second factor.

    Schedules compute the copy where it is read.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        A function that is not scheduled yet.
    """
    root = function.body
    if not isinstance(root, SBlockRealize):
        return function
    copies: list[tuple[Any, tirx.Stmt]] = []

    def apart(block: SBlock) -> SBlock:
        return _with_own_factors(block, copies)

    body = tvm_ffi.structural_map(root.block.body, (SBlock, apart))
    if not copies:
        return function
    tensors = [*root.block.alloc_buffers, *(tensor for tensor, _ in copies)]
    statements = tirx.SeqStmt([*(copy for _, copy in copies), body])
    changed = changed_block(
        root.block, root.block.iter_vars, body=statements, alloc_buffers=tensors
    )
    return function.with_body(SBlockRealize(root.iter_values, root.predicate, changed))


def _with_own_factors(block: SBlock, copies: list[tuple[Any, tirx.Stmt]]) -> SBlock:
    store = block.body
    if block.init is None or not isinstance(store, tirx.BufferStore):
        return block
    loads = [load for load in loads_of(store.value) if not load.source.same_as(store.buffer)]
    if len(loads) != 2 or not loads[0].source.same_as(loads[1].source):
        return block
    first, second = loads
    if any(True for load in loads for index in load.indices for _ in loads_of(index)):
        return block
    if tvm_ffi.structural_equal(first, second):
        return block
    tensor = first.source
    copy = tirx.decl_buffer(tensor.shape, tensor.dtype, f"{tensor.name}_again")
    copies.append((copy, _copied(tensor, copy)))

    def instead(load: Any) -> Any:
        return tirx.BufferLoad(copy, load.indices) if load.same_as(second) else load

    value = tvm_ffi.structural_map(store.value, (ir.TensorLoad, instead))
    places = ((tensor, first.indices), (copy, second.indices))
    return changed_block(
        block,
        block.iter_vars,
        reads=[element_region(each, indices) for each, indices in places],
        body=tirx.BufferStore(store.buffer, value, store.indices),
    )


def _copied(tensor: Any, copy: Any) -> tirx.Stmt:
    """Loops that copy a tensor."""
    loops = [tirx.Var(f"i{at}", size.ty) for at, size in enumerate(tensor.shape)]
    axes = [
        tirx.IterVar(ir.Range(0, size), tirx.Var(f"v{at}", size.ty), tirx.IterVar.DataPar)
        for at, size in enumerate(tensor.shape)
    ]
    place = [axis.var for axis in axes]
    store = tirx.BufferStore(copy, tirx.BufferLoad(tensor, place), place)
    regions = ([element_region(each, place)] for each in (tensor, copy))
    body: tirx.Stmt = SBlockRealize(loops, True, SBlock(axes, *regions, copy.name, store))
    for loop, size in zip(reversed(loops), reversed(list(tensor.shape)), strict=True):
        body = tirx.For(loop, tirx.const(0, size.ty.dtype), size, tirx.ForKind.SERIAL, body)
    return body
