"""Whether TVM's schedule for products of a matrix and a vector mixes up the rows of a function.

``dlight.gpu.GEMV`` sums in a thread's own memory by rows in the order of its largest read, those
that all tensors have first. It then adds up by rows in the order of the function's loops. Where
the two differ, a thread reads what it has not written, and the result is wrong.
"""

from __future__ import annotations

from tvm import s_tir, sym, tirx
from tvm.s_tir.dlight import analysis
from tvm.s_tir.dlight.analysis.common_analysis import (
    collect_block_iter_vars_used_in_access_region as used,
)
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial


def mixes_up_rows(function: tirx.PrimFunc) -> bool:
    """Whether ``dlight.gpu.GEMV`` would give a function a wrong schedule.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        A function that is not scheduled yet.
    """
    schedule = s_tir.Schedule(function)
    blocks = try_inline_contiguous_spatial(schedule, analysis.normalize_prim_func(schedule))
    if not blocks or analysis.is_gemv(schedule, blocks[0]) is None:
        return False
    block = schedule.get(blocks[0].block_rv)
    rows = [each.var for each in block.iter_vars if _is_row(each)]
    accesses = [used(block, each.region) for each in (*block.writes, *block.reads)]
    read = [var for var in _order_of_read(block) if var in rows]
    shared = [var for var in read if all(var in each for each in accesses)]
    return [*shared, *(var for var in read if var not in shared)] != rows


def _is_row(axis: tirx.IterVar) -> bool:
    extent = axis.dom.extent
    one = isinstance(extent, tirx.IntImm) and int(extent) == 1
    return axis.iter_type == tirx.IterVar.DataPar and not one


def _order_of_read(block: s_tir.SBlock) -> list[tirx.Var]:
    """The loops of the largest read, from the outermost axis in memory to the innermost."""
    access = sym.normalize_to_iter_sum(
        analysis.detect_dominant_read(block),
        input_iters={each.var: each.dom for each in block.iter_vars},
    )
    return [part.source.source for part in access.args]
