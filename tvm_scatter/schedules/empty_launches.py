"""Launches of no blocks, which are left out.

TVM's runtime launches one block where a schedule asks for none, because a size is zero. The block
reads and writes tensors that have no elements, unless the kernel checks its bounds: a schedule
leaves that check out where the blocks cover the elements exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx


def without_empty_launches(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function, in which the host launches a kernel only where it has blocks."""
    root = function.body
    if not isinstance(root, s_tir.SBlockRealize):
        return function
    body = root.block.body
    guarded = _guarded(body)
    return function if guarded.same_as(body) else function.with_body(with_body(root, guarded))


def with_body(
    root: s_tir.SBlockRealize, body: tirx.Stmt, buffers: Sequence[Any] | None = None
) -> s_tir.SBlockRealize:
    """A block with another body, and perhaps with other buffers of its own."""
    block = root.block
    return s_tir.SBlockRealize(
        root.iter_values,
        root.predicate,
        s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            body,
            block.init,
            block.alloc_buffers if buffers is None else buffers,
            block.match_buffers,
            block.annotations,
        ),
    )


def _guarded(body: tirx.Stmt) -> tirx.Stmt:
    """The nests of loops, each run as often as it launches a block at all: once or never.

    A condition would say the same, but TVM takes it for one in the kernel, where threads may not
    wait for each other.
    """
    if isinstance(body, tirx.SeqStmt):
        nests = [_guarded(nest) for nest in body.seq]
        changed = any(not new.same_as(old) for new, old in zip(nests, body.seq, strict=True))
        return tirx.SeqStmt(nests) if changed else body
    if isinstance(body, tirx.For) and not _is_over(body, ""):
        # The host launches a kernel in turns.
        inner = _guarded(body.body)
        return body if inner.same_as(body.body) else _with_loop_body(body, inner)
    counts = _counts_that_may_be_zero(body)
    if not counts:
        return body
    times = reduce(tirx.min, counts, tirx.IntImm(counts[0].ty.dtype, 1))
    variable = tirx.Var("launch", times.ty.dtype)
    return tirx.For(variable, tirx.IntImm(times.ty.dtype, 0), times, tirx.ForKind.SERIAL, body)


def _with_loop_body(loop: tirx.For, body: tirx.Stmt) -> tirx.For:
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, None, dict(loop.annotations)
    )


def _counts_that_may_be_zero(nest: tirx.Stmt) -> list[Any]:
    """The numbers of blocks along each axis that are zero, or known at run time only."""
    found: list[Any] = []

    def loop(node: tirx.For) -> None:
        if _is_over(node, "blockIdx"):
            found.append(node.extent)

    if _is_over(nest, ""):
        tvm_ffi.structural_walk(nest, [(tirx.For, loop)], order="post")
    return [extent for extent in found if not isinstance(extent, tirx.IntImm) or int(extent) == 0]


def _is_over(statement: tirx.Stmt, threads: str) -> bool:
    """Whether a statement is a loop over threads or blocks whose tag begins like this."""
    binding = statement.thread_binding if isinstance(statement, tirx.For) else None
    return binding is not None and binding.thread_tag.startswith(threads)
