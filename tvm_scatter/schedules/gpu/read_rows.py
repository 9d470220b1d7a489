"""How a product brings rows that are read by index to shared memory: in vectors where it may.

TVM's schedule has a loop over the elements of a vector. Two things keep TVM from reading these
together. A concatenation chooses by the column whose element it takes; where its parts begin at a
multiple of a tile, that is a choice by the tile, which TVM does not see. And a tensor of a caller
may lie anywhere; then its elements are read one by one.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import is_by_index, varies

from .accesses import is_aligned


def with_read_rows(function: tirx.PrimFunc, tile: int) -> tirx.PrimFunc:
    """A scheduled product, in which rows are read in vectors.

    Parameters
    ----------
    function : tirx.PrimFunc
        A product by TVM's schedule. It stays the same if it reads nothing by index.
    tile : int
        The columns of a tile of the rows.
    """
    analyzer = Analyzer()

    def bind(loop: tirx.For) -> None:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def change(loop: tirx.For) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, SBlockRealize):
            return loop
        if not any(map(is_by_index, loads_of(loop.body.block.body))):
            return loop
        return _in_vectors(loop, tile, analyzer)

    tvm_ffi.structural_walk(function.body, (tirx.For, bind))
    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, change)))


def _in_vectors(loop: tirx.For, tile: int, analyzer: Analyzer) -> tirx.Stmt:
    """Reads in vectors if the tensors lie where that is possible, and one by one otherwise."""
    tensors: list[Any] = []
    for load in loads_of(loop.body.block.body):
        if is_by_index(load) and not any(map(load.source.same_as, tensors)):
            tensors.append(load.source)
    aligned = tirx.all(*(is_aligned(tensor, int(loop.extent)) for tensor in tensors))
    body = _by_tile(loop, tile, analyzer)
    begin, end = loop.min, loop.extent
    vectors = tirx.For(loop.loop_var, begin, end, tirx.ForKind.VECTORIZED, body)
    elements = tirx.For(loop.loop_var, begin, end, tirx.ForKind.UNROLLED, body)
    return tirx.IfThenElse(aligned, vectors, _renamed(elements))


def _renamed(loop: tirx.For) -> tirx.For:
    """The loop with variables of its own."""
    axes = [axis.var for axis in loop.body.block.iter_vars]
    instead = {each: tirx.Var(each.name, each.ty) for each in (loop.loop_var, *axes)}
    return tvm_ffi.structural_map(loop, (tvm.ir.Var, lambda each: instead.get(each, each)))


def _by_tile(loop: tirx.For, tile: int, analyzer: Analyzer) -> SBlockRealize:
    """The block in a loop, which is given the number of the tile as one more axis if need be."""
    realized, block = loop.body, loop.body.block
    axes = {
        axis.var: (axis, value)
        for axis, value in zip(block.iter_vars, realized.iter_values, strict=True)
    }
    tiles: dict[Any, tuple[tirx.IterVar, Any]] = {}

    def number_of_tile(variable: Any) -> Any:
        """The number of the tile that an axis is in; ``None`` if a vector may be in several."""
        axis, value = axes[variable]
        number = analyzer.simplify(tirx.floordiv(value, tile))
        if varies(number, loop.loop_var):
            return None
        if variable not in tiles:
            extent = analyzer.simplify(tirx.ceildiv(axis.dom.extent, tile))
            domain = tvm.ir.Range.from_min_extent(tirx.const(0, extent.ty.dtype), extent)
            name = tirx.Var(f"{variable.name}_tile", variable.ty)
            tiles[variable] = tirx.IterVar(domain, name, tirx.IterVar.DataPar), number
        return tiles[variable][0].var

    def by_tile(node: tirx.LE) -> Any:
        """Of the tile, what is asked of an axis: whether it is behind the begin of a part."""
        begin, axis = node.a, node.b
        if not isinstance(begin, tirx.IntImm) or int(begin) % tile or axis not in axes:
            return node
        number = number_of_tile(axis)
        return node if number is None else tirx.const(int(begin) // tile, axis.ty.dtype) <= number

    body = tvm_ffi.structural_map(block.body, (tirx.LE, by_tile))
    known = [*axes.values(), *tiles.values()]
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
