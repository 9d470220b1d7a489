"""Vectors that are read before what is computed of their elements one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import substitute, unguarded_loads
from tvm_scatter.emit.expressions import are_neighbours, moves
from tvm_scatter.emit.tensors import element_bytes

from .accesses import is_aligned

#: Bytes of the widest access.
_WIDEST = 16


def read_first(
    loop: tirx.For, given: Sequence[Any], own: list[Any], analyzer: Analyzer
) -> tuple[list[tirx.Stmt], tirx.For]:
    """Statements that read vectors, and the loop that takes their elements instead.

    Parameters
    ----------
    loop : tvm.tirx.For
        A loop over the elements of a vector, each of which a block computes and stores.
    given : sequence
        The tensors of a caller, which may begin anywhere.
    own : list
        Tensors of a thread, which the vectors' ones are added to.
    analyzer : tvm.sym.Analyzer
        Knows the loops around.
    """
    block = loop.body.block
    axis = block.iter_vars[-1]
    loads = [load for load in unguarded_loads(block.body.value) if _is_vector(load, axis, loop)]
    if not loads or not _counts(loop, analyzer):
        return [], loop
    statements, kept = [], []
    for load in loads:
        vector = tirx.decl_buffer((loop.extent,), load.source.dtype, "read", scope="local")
        kept.append(vector)
        statements.append(_read(loop, load, vector, any(map(load.source.same_as, given))))
    own += kept
    return statements, _taking(loop, loads, kept)


def over_a_vector(loop: tirx.For, kind: int, parts: Callable[[Any], Mapping[str, Any]]) -> tirx.For:
    """The loop over a vector with other parts of its block, which depend on the lane."""
    realized, block = loop.body, loop.body.block
    domain = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
    lane = tirx.IterVar(domain, tirx.Var("lane", loop.loop_var.ty), tirx.IterVar.DataPar)
    axes, values = [*block.iter_vars, lane], [*realized.iter_values, loop.loop_var]
    body = SBlockRealize(values, realized.predicate, changed_block(block, axes, **parts(lane.var)))
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, body)


def renamed(loop: tirx.For) -> tirx.For:
    """The loop with variables of its own."""
    axes = [axis.var for axis in loop.body.block.iter_vars]
    instead = {each: tirx.Var(each.name, each.ty) for each in (loop.loop_var, *axes)}
    return tvm_ffi.structural_map(loop, (tvm.ir.Var, lambda each: instead.get(each, each)))


def element_region(tensor: Any, indices: Any) -> tirx.BufferRegion:
    """The region of one element."""
    return tirx.BufferRegion(tensor, [tvm.ir.Range.from_min_extent(each, 1) for each in indices])


def changed_block(block: SBlock, axes: Any, **parts: Any) -> SBlock:
    """A block with other axes and other parts."""
    names = ("reads", "writes", "name_hint", "body", "init", "alloc_buffers", "match_buffers")
    rest = {name: parts.get(name, getattr(block, name)) for name in (*names, "annotations")}
    return SBlock(axes, *rest.values())


def _counts(loop: tirx.For, analyzer: Analyzer) -> bool:
    """Whether the last axis of the block counts like the loop, from a multiple of its extent."""
    value, lanes = loop.body.iter_values[-1], int(loop.extent)
    first = substitute(value, {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype)})
    return bool(
        analyzer.can_prove_equal(value - first, loop.loop_var)
        and analyzer.can_prove_equal(tirx.floormod(first, lanes), 0)
    )


def _is_vector(load: Any, axis: tirx.IterVar, loop: tirx.For) -> bool:
    """Whether a load along the loop reads a whole vector of a tensor, from its begin."""
    lanes = int(loop.extent)
    bytes_ = lanes * element_bytes(load.source)
    if lanes == 1 or bytes_ > _WIDEST or str(load.source.scope()) != "global":
        return False
    if not moves(load, axis.var) or not are_neighbours(load, axis.var):
        return False
    width = load.source.shape[-1]
    whole_rows = isinstance(width, tirx.IntImm) and int(width) % lanes == 0
    if len(load.indices) > 1 and not whole_rows:
        return False
    number = tirx.Var("vector", axis.var.ty)
    first = substitute(load.indices[-1], {axis.var: number * lanes})
    return bool(Analyzer().can_prove_equal(tirx.floormod(first, lanes), 0))


def _read(loop: tirx.For, load: Any, vector: Any, is_given: bool) -> tirx.Stmt:
    def over(kind: int) -> tirx.For:
        found = over_a_vector(
            loop,
            kind,
            lambda lane: {
                "reads": [element_region(load.source, load.indices)],
                "writes": [element_region(vector, [lane])],
                "name_hint": "read",
                "body": tirx.BufferStore(vector, load, [lane]),
            },
        )
        return renamed(found)

    vectors = over(tirx.ForKind.VECTORIZED)
    if not is_given:
        return vectors
    elements = over(tirx.ForKind.UNROLLED)
    return tirx.IfThenElse(is_aligned(load.source, int(loop.extent)), vectors, elements)


def _taking(loop: tirx.For, loads: Sequence[Any], kept: Sequence[Any]) -> tirx.For:
    """The loop, in which elements of vectors take the place of loads."""
    store = loop.body.block.body

    def parts(lane: Any) -> dict[str, Any]:
        def instead(load: Any) -> Any:
            for each, vector in zip(loads, kept, strict=True):
                if load.same_as(each):
                    return tirx.BufferLoad(vector, [lane])
            return load

        value = tvm_ffi.structural_map(store.value, (TensorLoad, instead))
        regions = [element_region(vector, [lane]) for vector in kept]
        return {
            "reads": [*loop.body.block.reads, *regions],
            "body": tirx.BufferStore(store.buffer, value, store.indices),
        }

    return over_a_vector(loop, loop.kind, parts)
