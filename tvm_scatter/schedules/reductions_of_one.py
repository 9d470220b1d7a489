"""Reductions of one element, which are computations like any other.

TVM's schedules drop a loop of one turn, and with it what tells that a block reduces. When they move
what follows into the block, they move it into the first value, too: a bias is added twice.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock


def without_reductions_of_one(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, in which reductions of one element compute their result from the first value.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        A function that is not scheduled yet.
    """
    body = tvm_ffi.structural_map(function.body, (SBlock, _plain))
    return function if body.same_as(function.body) else function.with_body(body)


def _plain(block: SBlock) -> SBlock:
    """The block without its first values, if it reduces one element in plain statements."""
    if block.init is None or not all(map(_is_one, block.iter_vars)):
        return block
    firsts, updates = _statements(block.init), _statements(block.body)
    stores = all(isinstance(each, tirx.BufferStore) for each in firsts)
    if not stores or not all(isinstance(each, (tirx.BufferStore, tirx.Bind)) for each in updates):
        return block
    return SBlock(
        [tirx.IterVar(each.dom, each.var, tirx.IterVar.DataPar) for each in block.iter_vars],
        block.reads,
        block.writes,
        block.name_hint,
        _begun(firsts, updates),
        None,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _is_one(axis: tirx.IterVar) -> bool:
    """Whether a block has one turn along an axis, or turns that are apart from each other."""
    if axis.iter_type == tirx.IterVar.CommReduce:
        return isinstance(axis.dom.extent, tirx.IntImm) and int(axis.dom.extent) == 1
    return bool(axis.iter_type == tirx.IterVar.DataPar)


def _begun(firsts: list[Any], updates: list[Any]) -> tirx.Stmt:
    """The updates, which take the first values instead of reading them."""
    unwritten = list(firsts)

    def first(load: Any) -> Any:
        for store in unwritten:
            if load.source.same_as(store.buffer) and _are_equal(load.indices, store.indices):
                return store.value
        return load

    result: list[Any] = []
    for each in updates:
        value = tvm_ffi.structural_map(each.value, (ir.TensorLoad, first))
        if isinstance(each, tirx.Bind):
            result.append(tirx.Bind(each.var, value))
        else:
            result.append(tirx.BufferStore(each.buffer, value, each.indices))
            unwritten = [store for store in unwritten if not store.buffer.same_as(each.buffer)]
    return tirx.SeqStmt(result) if len(result) > 1 else result[0]


def _are_equal(some: Any, others: Any) -> bool:
    return bool(tvm_ffi.structural_equal(list(some), list(others)))


def _statements(body: tirx.Stmt) -> list[Any]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
