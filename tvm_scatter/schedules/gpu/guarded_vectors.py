"""Vectors that a product accesses in tensors of a caller.

These may lie anywhere; between two vectors, their elements are accessed one by one. A concatenation
chooses by the column whose element it takes. Where its parts begin at a multiple of a vector, that
is a choice by the vector, which TVM does not see. And what follows a product may choose by the
element: then TVM writes them one by one. So they are computed first, and then written together.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import varies

from .accesses import is_aligned
from .vectors_first import changed_block, element_region, over_a_vector, read_first, renamed


def with_guarded_vectors(function: tirx.PrimFunc, reads_first: bool = False) -> tirx.PrimFunc:
    """A scheduled product, whose vectors are accessed as it is possible in a caller's tensors.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        The product.
    reads_first : bool
        Whether what follows the product reads vectors, too, before it computes with them.
    """
    analyzer = Analyzer()
    given = [each for each in function.params if is_buffer_var(each)]
    computed: list[Any] = []

    def bind(loop: tirx.For) -> None:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def change(loop: tirx.For) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, SBlockRealize):
            return loop
        store = loop.body.block.body
        if str(store.buffer.dtype) == "bool":
            # TVM's vectors of truth values have two bytes for each, the tensors one.
            return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)
        if any(map(store.buffer.same_as, given)) and not isinstance(store.value, TensorLoad):
            kept = tirx.decl_buffer((loop.extent,), store.buffer.dtype, "computed", scope="local")
            reads: list[tirx.Stmt] = []
            if reads_first:
                reads, loop = read_first(loop, given, computed, analyzer)
            computed.append(kept)
            return tirx.SeqStmt([*reads, _computed_first(loop, kept)])
        tensors: list[Any] = []
        # A single element lies where it may be read. A branch would hold up the reads behind it.
        loads = loads_of(store) if int(loop.extent) > 1 else ()
        for load in loads:
            if any(map(load.source.same_as, given)) and not any(map(load.source.same_as, tensors)):
                tensors.append(load.source)
        return _in_vectors(loop, tensors, analyzer) if tensors else loop

    tvm_ffi.structural_walk(function.body, (tirx.For, bind))
    body = tvm_ffi.structural_map(function.body, (tirx.For, change))
    return function.with_body(_with_buffers(body, computed))


def _with_buffers(root: SBlockRealize, buffers: list[Any]) -> SBlockRealize:
    """The body of a function with more buffers of its own."""
    block = root.block
    known = [*block.alloc_buffers, *buffers]
    return SBlockRealize(
        root.iter_values, root.predicate, changed_block(block, block.iter_vars, alloc_buffers=known)
    )


def _computed_first(loop: tirx.For, kept: Any) -> tirx.Stmt:
    """A loop that computes the elements of a vector one by one, and one that writes the vector."""
    block, store = loop.body.block, loop.body.block.body
    write = over_a_vector(
        loop,
        tirx.ForKind.VECTORIZED,
        lambda lane: {
            "reads": [element_region(kept, [lane])],
            "body": tirx.BufferStore(store.buffer, tirx.BufferLoad(kept, [lane]), store.indices),
        },
    )
    compute = over_a_vector(
        loop,
        tirx.ForKind.UNROLLED,
        lambda lane: {
            "writes": [element_region(kept, [lane])],
            "name_hint": f"{block.name_hint}_computed",
            "body": tirx.BufferStore(kept, store.value, [lane]),
        },
    )
    return tirx.SeqStmt([compute, renamed(write)])


def _in_vectors(loop: tirx.For, tensors: list[Any], analyzer: Analyzer) -> tirx.Stmt:
    """Reads in vectors if the tensors lie where that is possible, and one by one otherwise."""
    aligned = tirx.all(*(is_aligned(tensor, int(loop.extent)) for tensor in tensors))
    body = _by_vector(loop, analyzer)
    begin, end = loop.min, loop.extent
    vectors = tirx.For(loop.loop_var, begin, end, tirx.ForKind.VECTORIZED, body)
    elements = tirx.For(loop.loop_var, begin, end, tirx.ForKind.UNROLLED, body)
    return tirx.IfThenElse(aligned, vectors, renamed(elements))


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
    block = changed_block(block, [axis for axis, _ in known], body=body)
    return SBlockRealize([value for _, value in known], realized.predicate, block)
