"""Vectors that a product accesses in tensors of a caller, which may lie anywhere.

There its elements are accessed one by one. A concatenation chooses by the column whose element it
takes. Where its parts begin at a multiple of a vector, that is a choice by the vector, which TVM
does not see.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import varies

from .accesses import is_aligned


def with_guarded_vectors(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled product, whose loops over vectors ask where the tensors lie that they read."""
    analyzer = Analyzer()
    given = [each for each in function.params if is_buffer_var(each)]

    def bind(loop: tirx.For) -> None:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def change(loop: tirx.For) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, SBlockRealize):
            return loop
        tensors: list[Any] = []
        for load in loads_of(loop.body.block.body):
            if any(map(load.source.same_as, given)) and not any(map(load.source.same_as, tensors)):
                tensors.append(load.source)
        return _in_vectors(loop, tensors, analyzer) if tensors else loop

    tvm_ffi.structural_walk(function.body, (tirx.For, bind))
    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, change)))


def _in_vectors(loop: tirx.For, tensors: list[Any], analyzer: Analyzer) -> tirx.Stmt:
    """Reads in vectors if the tensors lie where that is possible, and one by one otherwise."""
    aligned = tirx.all(*(is_aligned(tensor, int(loop.extent)) for tensor in tensors))
    body = _by_vector(loop, analyzer)
    begin, end = loop.min, loop.extent
    vectors = tirx.For(loop.loop_var, begin, end, tirx.ForKind.VECTORIZED, body)
    elements = tirx.For(loop.loop_var, begin, end, tirx.ForKind.UNROLLED, body)
    return tirx.IfThenElse(aligned, vectors, _renamed(elements))


def _renamed(loop: tirx.For) -> tirx.For:
    """The loop with variables of its own."""
    axes = [axis.var for axis in loop.body.block.iter_vars]
    instead = {each: tirx.Var(each.name, each.ty) for each in (loop.loop_var, *axes)}
    return tvm_ffi.structural_map(loop, (tvm.ir.Var, lambda each: instead.get(each, each)))


def _by_vector(loop: tirx.For, analyzer: Analyzer) -> SBlockRealize:
    """The block in a loop, which is given the number of the vector as one more axis if need be."""
    realized, block, lanes = loop.body, loop.body.block, int(loop.extent)
    axes = {
        axis.var: (axis, value)
        for axis, value in zip(block.iter_vars, realized.iter_values, strict=True)
    }
    numbers: dict[Any, tuple[tirx.IterVar, Any]] = {}

    def number_of(variable: Any) -> Any:
        """Which vector along an axis this is; ``None`` if its elements may be of several."""
        axis, value = axes[variable]
        number = analyzer.simplify(tirx.floordiv(value, lanes))
        if varies(number, loop.loop_var):
            return None
        if variable not in numbers:
            extent = analyzer.simplify(tirx.ceildiv(axis.dom.extent, lanes))
            domain = tvm.ir.Range.from_min_extent(tirx.const(0, extent.ty.dtype), extent)
            name = tirx.Var(f"{variable.name}_vector", variable.ty)
            numbers[variable] = tirx.IterVar(domain, name, tirx.IterVar.DataPar), number
        return numbers[variable][0].var

    def by_number(node: tirx.LE) -> Any:
        """Of the vector, what is asked of an axis: whether it is behind the begin of a part."""
        begin, axis = node.a, node.b
        if not isinstance(begin, tirx.IntImm) or int(begin) % lanes or axis not in axes:
            return node
        number = number_of(axis)
        return node if number is None else tirx.const(int(begin) // lanes, axis.ty.dtype) <= number

    body = tvm_ffi.structural_map(block.body, (tirx.LE, by_number))
    known = [*axes.values(), *numbers.values()]
    block = SBlock(
        [axis for axis, _ in known],
        block.reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    return SBlockRealize([value for _, value in known], realized.predicate, block)
