"""Copies to shared memory that threads wait for some steps later (``cp.async``).

TVM's software pipeline gives each tensor in shared memory as many versions as there are steps on
their way. TVM's own asynchronous copies need an option of the whole compilation; these are calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import MatchBufferRegion, SBlock, SBlockRealize
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.computed_updates import BRANCH, function_name, substitute
from tvm_scatter.emit.expressions import varies
from tvm_scatter.emit.tensors import element_bytes

from . import tensor_core_code as code
from . import warpgroup_code
from .accesses import is_aligned
from .vectors_first import renamed

#: What marks the loop over the steps in whose body the copies come first.
STEPS = "tvm_scatter_steps"
_BYTES = 16


def with_later_copies(
    function: tirx.PrimFunc, stages: int, by_group: bool = False
) -> tirx.PrimFunc:
    """A scheduled function that copies for later steps while it computes one.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        Its loop with the annotation ``STEPS`` has two copies in vectors and what is computed of
        them as its body.
    stages : int
        The steps that are copied or computed at a time, 2 to 4.
    by_group : bool
        Whether tensor cores compute of shared memory, and go on beside the threads.
    """
    given = [each for each in function.params if is_buffer_var(each)]

    def copied(loop: tirx.For) -> tirx.Stmt:
        return _copied(loop, given, by_group)

    def steps(loop: tirx.For) -> tirx.Stmt:
        return _in_stages(loop, stages, by_group) if STEPS in loop.annotations else loop

    body = tvm_ffi.structural_map(function.body, (tirx.For, copied))
    return function.with_body(tvm_ffi.structural_map(body, (tirx.For, steps)))


def _in_stages(loop: tirx.For, stages: int, by_group: bool) -> tirx.Stmt:
    """The loop over the steps, behind which all threads are done with what was copied."""
    *copies, computed = loop.body.seq
    end = tirx.Evaluate(code.end_copies())
    wait = tirx.Evaluate(code.wait_for_copies(loop.extent - loop.loop_var, stages - 2, by_group))
    together = tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared"))
    done, products = [together], [computed]
    if by_group:
        done = [tirx.Evaluate(warpgroup_code.wait_for_products()), together]
        begun = tirx.Evaluate(warpgroup_code.begin_products())
        ended = tirx.Evaluate(warpgroup_code.end_products())
        products = [begun, computed, ended]
    begin, extent = loop.min, loop.extent
    copied = [*copies, end]
    parts = [wait, *copied, *products]
    late, first = stages - 1, [0] * len(copied)
    order = list(range(len(parts)))
    if by_group:
        # Tensor cores that compute beside the threads begin before these copy.
        behind = range(1 + len(products), len(parts))
        order = [0, *behind, *range(1, 1 + len(products))]
    pipeline = {
        "software_pipeline_stage": [late, *first, *([late] * len(products))],
        "software_pipeline_order": order,
    }
    body = tirx.SeqStmt(parts)
    staged = tirx.For(loop.loop_var, begin, extent, loop.kind, body, None, pipeline)
    return tirx.SeqStmt([staged, *done])


def _copied(loop: tirx.For, given: list[Any], by_group: bool) -> tirx.Stmt:
    """A loop over a vector as one later copy, if it copies 16 bytes of a tensor."""
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, SBlockRealize):
        return loop
    realized, store = loop.body, loop.body.block.body
    if not isinstance(store, tirx.BufferStore) or "shared" not in str(store.buffer.scope()):
        return loop
    one_by_one = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)
    # TVM has no vectors for the places that tensor cores read at by themselves.
    otherwise = one_by_one if by_group else loop
    condition, value = tirx.const(True, "bool"), store.value
    if isinstance(value, tvm.ir.Call) and function_name(value) == BRANCH:
        condition, value, instead = value.args
        if not _is_zero(instead):
            return otherwise
    lanes, axis = int(loop.extent), realized.block.iter_vars[-1].var
    if not isinstance(value, TensorLoad) or lanes * element_bytes(value.source) != _BYTES:
        return otherwise
    if any(varies(part, axis) for part in value.indices[:-1]):
        return otherwise
    if not all(_holds_for_vectors(part, axis, lanes) for part in _parts(condition)):
        return otherwise
    later = _later(loop, condition, value, store, lanes)
    if not any(map(value.source.same_as, given)):
        return later
    return tirx.IfThenElse(is_aligned(value.source, lanes), later, renamed(one_by_one))


def _is_zero(value: Any) -> bool:
    """Whether a value is the zero that a copy that is not there leaves."""
    return isinstance(value, tirx.IntImm | tirx.FloatImm) and value.value == 0


def _parts(condition: Any) -> Iterator[Any]:
    """What must hold for a condition, all of it."""
    if isinstance(condition, tirx.And):
        yield from _parts(condition.a)
        yield from _parts(condition.b)
    else:
        yield condition


def _holds_for_vectors(condition: Any, axis: Any, lanes: int) -> bool:
    """Whether a condition holds for all of a vector along an axis if it holds for the first."""
    if not varies(condition, axis):
        return True
    is_end = isinstance(condition, tirx.LT) and condition.a.same_as(axis)
    return is_end and isinstance(condition.b, tirx.IntImm) and int(condition.b) % lanes == 0


def _later(loop: tirx.For, condition: Any, value: Any, store: Any, lanes: int) -> SBlockRealize:
    realized, block = loop.body, loop.body.block
    begin = {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype)}
    matched, regions = [], []
    for name, tensor, place in (
        ("to", store.buffer, store.indices),
        ("origin", value.source, value.indices),
    ):
        regions.append(_vector(tensor, place, lanes))
        matched.append(_matched(name, tensor, lanes))
    zero = tirx.const(0, "int32")
    to, origin = (tirx.address_of(tirx.BufferLoad(each, [zero])) for each in matched)
    call = tirx.Evaluate(code.copy_later(to, origin, condition))
    pairs = [MatchBufferRegion(*pair) for pair in zip(matched, regions, strict=True)]
    reads, writes = regions[1:], regions[:1]
    copy = SBlock(
        *(block.iter_vars, reads, writes, block.name_hint),
        *(call, None, [], pairs, block.annotations),
    )
    values = [substitute(value, begin) for value in realized.iter_values]
    return SBlockRealize(values, substitute(realized.predicate, begin), copy)


def _vector(tensor: Any, place: Any, lanes: int) -> tirx.BufferRegion:
    ranges = [tvm.ir.Range.from_min_extent(index, 1) for index in place[:-1]]
    return tirx.BufferRegion(tensor, [*ranges, tvm.ir.Range.from_min_extent(place[-1], lanes)])


def _matched(name: str, tensor: Any, lanes: int) -> Any:
    return tirx.decl_buffer(
        (lanes,),
        tensor.dtype,
        name,
        strides=[tirx.Var(f"{name}_stride", "int32")],
        scope=tensor.scope(),
        offset_factor=1,
    )
