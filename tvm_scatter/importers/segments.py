"""To which segment of consecutive entries each entry belongs."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

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
