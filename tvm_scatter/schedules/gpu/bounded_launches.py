"""Launches of any number of blocks along three axes, of which CUDA bounds two.

Only the first axis of a launch has no bound that matters. Where several axes are one loop of a
schedule instead, TVM divides by their sizes wherever a place is needed, in 64 bits, and NVIDIA's
compiler keeps such a division behind each of many branches: 2428 us on an H200 for 16 products of
2048 rows, 128 terms and as many columns as rows, whose number was unknown, and 410 where it is
known.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import substitute

from .accesses import launched

#: The most blocks along each axis but the first.
MOST_BLOCKS = 65535
_BOUNDED = ("blockIdx.y", "blockIdx.z")


def with_bounded_launches(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function, whose blocks take turns along axes that may be too long."""

    def change(loop: tirx.For) -> tirx.Stmt:
        tag = None if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
        return _in_turns(loop, str(tag)) if tag in _BOUNDED and _may_be_longer(loop) else loop

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, change)))


def _may_be_longer(loop: tirx.For) -> bool:
    return not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) > MOST_BLOCKS


def _in_turns(loop: tirx.For, tag: str) -> tirx.Stmt:
    dtype = str(loop.loop_var.ty)
    most = tirx.IntImm(dtype, MOST_BLOCKS)
    block, turn = (tirx.Var(name, dtype) for name in ("block", "turn"))
    # Not a condition, in which threads may not wait for each other.
    turns = tirx.truncdiv(loop.extent - block + (MOST_BLOCKS - 1), most)
    body = substitute(loop.body, {loop.loop_var: turn * most + block})
    # What a turn has in shared memory is read before the next one writes there.
    together = tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared"))
    turned = tirx.For(
        turn, tirx.IntImm(dtype, 0), turns, tirx.ForKind.SERIAL, tirx.SeqStmt([body, together])
    )
    return launched(tag, block, tirx.min(loop.extent, most), turned)
