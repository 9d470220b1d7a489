"""Vectors that TVM's schedules read from tensors of a caller, which may begin anywhere.

A vector has to be read from a multiple of its size. What TVM allocates begins at one; a row of a
tensor of a caller may not, and the kernel would be aborted.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import all_of, is_by_index

from .accesses import is_aligned


def with_aligned_reads(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function, which reads vectors from its parameters only where it may.

    Parameters
    ----------
    function : tirx.PrimFunc
        Scheduled by TVM. Kernels of this package ask by themselves, as do their reads by index.
    """

    def change(loop: tirx.For) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.VECTORIZED or not all_of(loop.body, SBlock):
            return loop
        loads = list(loads_of(loop.body))
        tensors: list[Any] = []
        for source in (load.source for load in loads if not is_by_index(load)):
            if any(map(source.same_as, function.params)) and not any(map(source.same_as, tensors)):
                tensors.append(source)
        if not tensors or any(map(is_by_index, loads)):
            return loop
        aligned = tirx.all(*(is_aligned(tensor, int(loop.extent)) for tensor in tensors))
        return tirx.IfThenElse(aligned, loop, in_elements(loop))

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, change)))


def in_elements(loop: tirx.For) -> tirx.For:
    """A vectorized loop that takes its elements one by one, with variables of its own."""
    elements = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)
    axes = [axis.var for block in all_of(loop.body, SBlock) for axis in block.iter_vars]
    own = [inner.loop_var for inner in all_of(loop, tirx.For)]
    instead = {each: tirx.Var(each.name, each.ty) for each in (*own, *axes)}
    return tvm_ffi.structural_map(
        elements, (type(loop.loop_var), lambda each: instead.get(each, each))
    )
