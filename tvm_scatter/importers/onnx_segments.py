"""Reductions of segments, which take the place of loops over bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.expectations import expect_sizes

from .onnx_sizes import sizes_in, with_shape
from .segments import order_in_place, segment_of_each, sizes_of
from .shapes import differ, same_shape, shape_of, text

_REDUCTIONS = {"sum": "add", "mean": "add", "max": "max"}


def segment_reduce(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """The sum, mean or maximum of rows between offsets, for each column.

    A mean of nothing is 0, as onnxruntime and PyTorch have it; a maximum may be minus infinity.
    Rows before the first offset, behind the last one, and of words that are padding count nowhere.
    """
    given = [*inputs, *[None] * (6 - len(inputs))]
    rows, offsets, count, words, padding, weights = given
    how = attributes["how"].decode()
    name = "embedding_bag (Loop)"
    if offsets.ty.ndim != 1:
        raise ScatterError(f"{name}: offsets of shape {text(shape_of(offsets))} must be a vector.")
    offsets = bb.emit(relax.op.astype(offsets, "int64"))
    bags, (entries, *row) = shape_of(offsets)[0] - 1, shape_of(rows)
    if weights is not None:
        weights = with_shape(bb, name, "weights", weights, (entries,))
        weights = bb.emit(relax.op.reshape(weights, (entries, *(1 for _ in row))))
        rows = bb.emit(relax.op.multiply(rows, weights))
    if count is not None:
        offsets = _as_many(bb, name, offsets, bags, sizes_in(bb, name, count)[0])
    limits = bb.emit(relax.op.reshape(offsets, (1, bags + 1)))
    bag_of = bb.emit(relax.op.reshape(segment_of_each(bb, limits, entries, -1, name), (entries,)))
    ordering = order_in_place(bb, offsets, entries, bags, first=0)
    dtype, kept = str(rows.ty.dtype), None
    nothing = float("-inf") if how == "max" else 0.0
    if words is not None:
        kept = bb.emit(relax.op.not_equal(words, bb.emit(relax.op.reshape(padding, (1,)))))
        column = bb.emit(relax.op.reshape(kept, (entries, *(1 for _ in row))))
        rows = bb.emit(relax.op.where(column, rows, relax.const(nothing, dtype)))

    def reduced(nothing: Any, rows: Any, reduction: str) -> Any:
        """Rows before the first offset, and behind the last one, are of no bag."""
        data = bb.emit(relax.op.broadcast_to(nothing, [bags, *shape_of(rows)[1:]]))
        return bb.emit(
            ops.index_put(
                data,
                [bag_of],
                rows,
                [0],
                reduction,
                wrap_negative=False,
                leaves_out=True,
                operator=name,
                ordering=ordering,
            )
        )

    result = reduced(relax.const(nothing, dtype), rows, _REDUCTIONS[how])
    if how == "sum" or (how == "max" and attributes["empty"] != b"zero"):
        return result
    if kept is None:
        sizes = bb.emit_te(sizes_of, *ordering, primfunc_name_hint="sizes")
    else:
        ones = bb.emit(relax.op.astype(kept, "int64"))
        sizes = reduced(relax.const(0, "int64"), ones, "add")
    column = bb.emit(relax.op.reshape(sizes, (bags, *(1 for _ in row))))
    empty = bb.emit(relax.op.equal(column, relax.const(0, "int64")))
    if how == "mean":
        result = bb.emit(relax.op.divide(result, bb.emit(relax.op.astype(column, dtype))))
    return relax.op.where(empty, relax.const(0.0, dtype), result)


def _as_many(bb: Any, name: str, offsets: Any, bags: Any, count: Any) -> Any:
    """The offsets, after a check that a loop counts as many bags."""
    if differ(bags, count):
        raise ScatterError(
            f"{name}: {count} bags do not fit offsets of shape {text(shape_of(offsets))}; there "
            "must be one offset more than bags."
        )
    if same_shape([bags], [count]):
        return offsets
    return bb.emit(expect_sizes(offsets, [bags], [count], what="bags", operator=name))
