"""Launches of any number of blocks along three axes, of which CUDA bounds two.

Only the first axis of a launch has no bound that matters. Where several axes are one loop of a
schedule instead, TVM divides by their sizes wherever a place is needed, in 64 bits, and NVIDIA's
compiler keeps such a division behind each of many branches: 2428 us on an H200 for 16 products of
2048 rows, 128 terms and as many columns as rows, whose number was unknown, and 410 where it is
known.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.schedules.empty_launches import with_body

from .accesses import launched

#: The most blocks along each axis but the first.
MOST_BLOCKS = 65535
_BOUNDED = ("blockIdx.y", "blockIdx.z")


def with_bounded_launches(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function of one kernel, launched again and again where an axis is too long."""
    root = function.body
    if not isinstance(root, s_tir.SBlockRealize):
        return function
    turns: list[tuple[tirx.Var, tirx.Expr]] = []

    def change(loop: tirx.For) -> tirx.Stmt:
        tag = None if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
        if tag not in _BOUNDED or not _may_be_longer(loop):
            return loop
        dtype = str(loop.loop_var.ty)
        most = tirx.IntImm(dtype, MOST_BLOCKS)
        block, turn = (tirx.Var(name, dtype) for name in ("block", "turn"))
        turns.append((turn, tirx.floordiv(loop.extent + (MOST_BLOCKS - 1), most)))
        body = substitute(loop.body, {loop.loop_var: turn * most + block})
        return launched(tag, block, tirx.min(loop.extent - turn * most, most), body)

    body = tvm_ffi.structural_map(root.block.body, (tirx.For, change))
    for turn, count in turns:
        body = tirx.For(turn, tirx.IntImm(str(turn.ty), 0), count, tirx.ForKind.SERIAL, body)
    return function.with_body(with_body(root, body)) if turns else function


def _may_be_longer(loop: tirx.For) -> bool:
    return not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) > MOST_BLOCKS
