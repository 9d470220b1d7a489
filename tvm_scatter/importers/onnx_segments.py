"""Reductions of segments, which take the place of loops over bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.expectations import ASCENDING, NOT_NEGATIVE, expect_numbers, expect_sizes
from tvm_scatter.ops.shapes import same_shape

from .onnx_sizes import sizes_in, with_shape
from .segments import order_of_segments, segment_of_each, sizes_of
from .shapes import differ, shape_of, text

_REDUCTIONS = {"sum": "add", "mean": "add", "max": "max"}


def segment_reduce(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """The sum, mean or maximum of rows between offsets, for each column.

    A mean of nothing is 0, as onnxruntime and PyTorch have it; a maximum may be minus infinity.
    With ``to_end`` a maximum of the last bag is of all rows from its first on, and a mean is
    divided by their number. Rows before the first offset, behind the last one otherwise, and of
    words that are padding count nowhere.
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
    offsets = _checked(bb, name, offsets)
    whole = offsets
    if attributes.get("to_end"):
        whole = bb.emit_te(_to_end, offsets, entries, primfunc_name_hint="to_end")
    dtype, nothing = str(rows.ty.dtype), float("-inf") if how == "max" else 0.0
    kept = None
    if words is not None:
        kept = bb.emit(relax.op.not_equal(words, bb.emit(relax.op.reshape(padding, (1,)))))
        column = bb.emit(relax.op.reshape(kept, (entries, *(1 for _ in row))))
        rows = bb.emit(relax.op.where(column, rows, relax.const(nothing, dtype)))
    limits = whole if how == "max" else offsets
    result = _reduced(bb, nothing, limits, rows, _REDUCTIONS[how], name)
    if how == "sum" or (how == "max" and attributes["empty"] != b"zero"):
        return result
    sizes = _sizes(bb, offsets, entries, kept, name)
    empty = bb.emit(relax.op.equal(_column(bb, sizes, row), relax.const(0, "int64")))
    if how == "mean":
        if whole is not offsets:
            sizes = _sizes(bb, whole, entries, kept, name)
        divisor = bb.emit(relax.op.astype(_column(bb, sizes, row), dtype))
        result = bb.emit(relax.op.divide(result, divisor))
    return relax.op.where(empty, relax.const(0.0, dtype), result)


def _sizes(bb: Any, offsets: Any, entries: Any, kept: Any, name: str) -> Any:
    """How many rows of each bag are kept; all are if that is ``None``."""
    order = order_of_segments(bb, offsets, entries, shape_of(offsets)[0] - 1)
    if kept is None and order:
        return bb.emit_te(sizes_of, *order, primfunc_name_hint="sizes")
    if kept is None:
        kept = bb.emit(relax.op.ones((entries,), "bool"))
    return _reduced(bb, 0, offsets, bb.emit(relax.op.astype(kept, "int64")), "add", name)


def _column(bb: Any, sizes: Any, row: Sequence[Any]) -> Any:
    """A number for each row."""
    return bb.emit(relax.op.reshape(sizes, (*shape_of(sizes), *(1 for _ in row))))


def _to_end(offsets: te.Tensor, entries: Any) -> te.Tensor:
    """Offsets, of which the last one is behind all entries."""
    last = offsets.shape[0] - 1

    def offset(at: Any) -> Any:
        return tirx.Select(at < last, offsets[at], tirx.Cast("int64", entries))

    return te.compute(offsets.shape, offset, name="to_end")


def _checked(bb: Any, name: str, offsets: Any) -> Any:
    """The offsets, after a check that they are not negative and ascend."""
    options = {"what": "an offset", "operator": name}
    offsets = bb.emit(expect_numbers(offsets, offsets, NOT_NEGATIVE, **options))
    return bb.emit(expect_numbers(offsets, offsets, ASCENDING, **options))


def _reduced(bb: Any, nothing: float, offsets: Any, rows: Any, reduction: str, name: str) -> Any:
    """The rows of each bag, reduced. Those before the first and behind the last are of none."""
    bags, (entries, *row), dtype = shape_of(offsets)[0] - 1, shape_of(rows), str(rows.ty.dtype)
    limits = bb.emit(relax.op.reshape(offsets, (1, bags + 1)))
    bag_of = segment_of_each(bb, limits, entries, -1, name)
    data = bb.emit(relax.op.full((bags, *row), relax.const(nothing, dtype), dtype))
    return bb.emit(
        ops.index_put(
            data,
            [bb.emit(relax.op.reshape(bag_of, (entries,)))],
            rows,
            [0],
            reduction,
            wrap_negative=False,
            leaves_out=True,
            operator=name,
            ordering=order_of_segments(bb, offsets, entries, bags) or None,
        )
    )


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
