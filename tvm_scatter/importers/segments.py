"""Segments of consecutive entries: which one an entry belongs to, and in which order they stand."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.emit.ordering import DTYPE as ORDER_DTYPE
from tvm_scatter.emit.ordering import LIMIT
from tvm_scatter.ops import operators as ops

from .shapes import shape_of


def segment_of_each(bb: Any, limits: Any, entries: Any, first: int, operator: str) -> Any:
    """The segment to which each entry belongs: how many limits lie at or before it.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Where the result is emitted.
    limits : relax.Expr
        Positions in increasing order: int64 of shape (batch, limits).
    entries : int or expression
        The number of entries.
    first : int
        The number of the entries before the first limit.
    operator : str
        What errors name.

    Returns
    -------
    segments : relax.Expr
        int64 of shape (batch, entries).
    """
    # A limit may lie behind the last entry.
    marks = ops.scatter_elements(
        bb.emit(relax.op.zeros((shape_of(limits)[0], entries + 1), "int64")),
        limits,
        relax.const(1, "int64"),
        1,
        "add",
        operator=operator,
    )
    passed = bb.emit(relax.op.cumsum(bb.emit(marks), axis=1, dtype="int64"))

    def segment(passed: te.Tensor) -> te.Tensor:
        shape = (passed.shape[0], passed.shape[1] - 1)
        return te.compute(shape, lambda b, i: passed[b, i] + first, name="segment")

    return bb.emit_te(segment, passed, primfunc_name_hint="segment")


def order_of_segments(
    bb: Any,
    limits: Any,
    entries: Any,
    rows: Any,
    *,
    limits_are_ends: bool = False,
    to_end: bool = False,
) -> tuple[Any, ...]:
    """The order of entries by segment, in which they stand already: where each segment begins.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Where the order is emitted.
    limits : relax.Expr
        Where segments begin and the last one ends: int64 of shape (limits,). Entries before the
        first limit and behind the last one are of no segment.
    entries : int or expression
        The number of entries.
    rows : int or expression
        The number of rows of the result. One that has no segment is empty.
    limits_are_ends : bool
        Whether limits are where segments end, so that the first segment begins at 0.
    to_end : bool
        Whether the last segment ends with the entries, whatever the last limit is.

    Returns
    -------
    ordering : tuple of relax.Expr
        For :func:`tvm_scatter.ops.operators.index_put`: the offsets alone. Empty if there are more
        entries or rows than an order can have.
    """
    if any(isinstance(size, int | tirx.IntImm) and int(size) >= LIMIT for size in (entries, rows)):
        return ()

    def begin(limits: te.Tensor, entries: Any, rows: Any, at: Any) -> Any:
        count, position = limits.shape[0], at - int(limits_are_ends)
        zero, end = tirx.IntImm("int64", 0), tirx.Cast("int64", entries)
        own = limits[tirx.max(tirx.min(position, count - 1), 0)]
        if limits_are_ends:
            own = tirx.Select(position < 0, zero, own)
        if to_end:
            own = tirx.Select(at < rows, own, end)
        return tirx.Cast(ORDER_DTYPE, tirx.max(tirx.min(own, end), zero))

    def offsets(limits: te.Tensor, entries: Any, rows: Any) -> te.Tensor:
        return te.compute((rows + 1,), partial(begin, limits, entries, rows), name="offsets")

    return (bb.emit_te(offsets, limits, entries, rows, primfunc_name_hint="offsets"),)


def sizes_of(offsets: te.Tensor) -> te.Tensor:
    """How many entries each segment of an order has: int64, 0 where offsets fall."""

    def size(at: Any) -> Any:
        return tirx.Cast("int64", tirx.max(offsets[at + 1] - offsets[at], 0))

    return te.compute((offsets.shape[0] - 1,), size, name="sizes")
