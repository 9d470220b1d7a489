"""The Relax operator of non-maximum suppression: which boxes no better one overlaps.

How many there are is known only at run time: :mod:`.compaction` lists them.
"""

from __future__ import annotations

from tvm import relax

from .own_operators import call_of, register_operator

KEPT_BOXES = "relax.tvm_scatter.kept_boxes"


def kept_boxes(
    boxes: relax.Expr,
    order: relax.Expr,
    candidates: relax.Expr,
    *,
    overlap: float,
    most: int | None = None,
) -> relax.Expr:
    """Keep the best box, and then each next one that none of the kept overlaps too much.

    Parameters
    ----------
    boxes : relax.Expr
        float32 or float64 of shape (B, N, 4): the two corners of each box, the lesser one first.
    order : relax.Expr
        int64 of shape (B, C, N): for each class of an image its boxes, the best one first.
    candidates : relax.Expr
        bool of shape (B, C, N): which of them are boxes of the class at all.
    overlap : float
        Two boxes overlap too much if the area that they share, divided by the area of both
        together, is greater.
    most : int, optional
        The most boxes that are kept of each class.

    Returns
    -------
    kept : relax.Expr
        bool of shape (B, C, N): which boxes are kept, in their order.
    """
    limit = -1 if most is None else most
    return call_of(KEPT_BOXES, [boxes, order, candidates], {"overlap": overlap, "most": limit})


def register() -> None:
    """Register the operator with TVM. Calling it again changes nothing."""
    register_operator(KEPT_BOXES, lambda call, _context: call.args[2].ty)
