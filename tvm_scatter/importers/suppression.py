"""Non-maximum suppression, as PyTorch's and ONNX's operators have it in common."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.ops.suppression import kept_boxes


def best_boxes(
    bb: relax.BlockBuilder,
    boxes: relax.Expr,
    scores: relax.Expr,
    overlap: float,
    least: float | None = None,
    most: int | None = None,
) -> tuple[relax.Expr, relax.Expr]:
    """Emit the suppression of boxes that better ones overlap.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Where it is emitted.
    boxes : relax.Expr
        Of shape (B, N, 4), as :func:`~tvm_scatter.ops.suppression.kept_boxes` takes them.
    scores : relax.Expr
        Of shape (B, C, N). Of equal ones the first is the best.
    overlap : float
        How much boxes may overlap.
    least : float, optional
        Boxes are left out whose scores are not greater.
    most : int, optional
        The most boxes of each class of an image.

    Returns
    -------
    order, kept : relax.Expr
        int64 and bool of shape (B, C, N): the boxes of each class, the best one first, and which of
        them are kept.
    """
    order = bb.emit(relax.op.argsort(scores, -1, True, "int64"))

    def candidate(scores: te.Tensor, order: te.Tensor) -> te.Tensor:
        def is_one(b: Any, c: Any, n: Any) -> Any:
            if least is None:
                return tirx.const(True, "bool")
            return scores[b, c, order[b, c, n]] > tirx.const(least, scores.dtype)

        return te.compute(scores.shape, is_one, name="candidates")

    candidates = bb.emit_te(candidate, scores, order, primfunc_name_hint="candidates")
    kept = bb.emit(kept_boxes(boxes, order, candidates, overlap=overlap, most=most))
    return order, kept
