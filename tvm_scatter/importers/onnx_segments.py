"""Reductions of segments, which take the place of loops over bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.expectations import expect_sizes

from .onnx_sizes import sizes_in, with_shape
from .segments import segment_of_each
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
    bag_of = bb.emit(
        relax.op.reshape(
            segment_of_each(
                bb, bb.emit(relax.op.reshape(offsets, (1, bags + 1))), entries, 0, name
            ),
            (entries,),
        )
    )
    if words is not None:
        kept = bb.emit(relax.op.not_equal(words, bb.emit(relax.op.reshape(padding, (1,)))))
        bag_of = bb.emit(relax.op.where(kept, bag_of, relax.const(0, "int64")))
    dtype = str(rows.ty.dtype)
    nothing = float("-inf") if how == "max" else 0.0
    # The first row is of what lies before all bags, the last one of what lies behind.
    shape = [bags + 2, *row]
    data = bb.emit(relax.op.broadcast_to(relax.const(nothing, dtype), shape))
    result = _between(bb, _added(bb, data, bag_of, rows, _REDUCTIONS[how], name), bags)
    if how == "sum" or (how == "max" and attributes["empty"] != b"zero"):
        return result
    none = bb.emit(relax.op.zeros((bags + 2,), "int64"))
    ones = bb.emit(relax.op.ones((entries,), "int64"))
    sizes = _between(bb, _added(bb, none, bag_of, ones, "add", name), bags)
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


def _added(bb: Any, data: Any, at: Any, rows: Any, reduction: str, name: str) -> Any:
    return bb.emit(
        ops.index_put(data, [at], rows, [0], reduction, wrap_negative=False, operator=name)
    )


def _between(bb: Any, tensor: Any, bags: Any) -> Any:
    """All rows but the first and the last."""

    def behind(tensor: te.Tensor, bags: Any) -> te.Tensor:
        shape = (bags, *tensor.shape[1:])
        return te.compute(shape, lambda i, *at: tensor(i + 1, *at), name="bag")

    return bb.emit_te(behind, tensor, bags, primfunc_name_hint="bag")
