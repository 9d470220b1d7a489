"""Reductions of segments: consecutive entries along an axis, between given boundaries."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from tvm_scatter.importers.segments import order_of_segments
from tvm_scatter.importers.segments import segment_of_each as segments_of
from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.expectations import ASCENDING, AT_MOST, EQUAL, NOT_NEGATIVE
from tvm_scatter.ops.shapes import is_empty, number_of
from tvm_scatter.problem.reductions import REDUCTIONS, canonical_reduction

from .call import TorchCall

#: What is left of each reduction if there is nothing to reduce, and how it scatters.
_REDUCTIONS = {
    "sum": (0.0, "add"),
    "mean": (0.0, "add"),
    "prod": (1.0, "mul"),
    "max": (float("-inf"), "max"),
    "min": (float("inf"), "min"),
    "amax": (float("-inf"), "max"),
    "amin": (float("inf"), "min"),
}


def segment_reduce(call: TorchCall) -> Any:
    """``segment_reduce`` with lengths or with offsets, which lie along their last axis."""
    data, lengths, offsets = call["data"], call["lengths"], call["offsets"]
    limits = offsets if lengths is None else lengths
    how, initial = call["reduce"], call["initial"]
    if how not in _REDUCTIONS:
        raise call.error(f"reduce {how!r} is unknown; it must be one of {', '.join(_REDUCTIONS)}.")
    if limits is None:
        raise call.error("there must be lengths or offsets; indices are not supported.")
    axis = call.axis(call["axis"], data.ty.ndim)
    batch = shape_of(data)[:axis]
    if limits.ty.ndim != axis + 1:
        raise call.error(
            f"dim {axis} must be the last one of lengths or offsets, but their shape is "
            f"{text(shape_of(limits))}."
        )
    limits = call.expect_shape(
        "lengths" if offsets is None else "offsets", limits, (*batch, shape_of(limits)[-1])
    )
    limits = call.cast(limits, "int64")
    segments = shape_of(limits)[-1] - (lengths is None)
    shape, dtype = (*batch, segments, *shape_of(data)[axis + 1 :]), str(data.ty.dtype)
    nothing, reduction = _REDUCTIONS[how]
    nothing = nothing if initial is None else float(initial)
    result = call.full(shape, nothing, dtype)
    if is_empty(data) or is_empty(result):
        result = _checked(call, result, limits, shape_of(data)[axis])
    else:
        checked = _checked(call, limits, limits, shape_of(data)[axis])
        result = _reduced(call, checked, result, axis, reduction)
    if not REDUCTIONS[canonical_reduction(how, call.origin)].needs_count:
        return result
    if lengths is None:
        lengths = call.compute(_differences, limits, name="length")
    lengths = call.reshape(lengths, (*shape[: axis + 1], *(1 for _ in shape[axis + 1 :])))
    empty = call.emit(relax.op.equal(lengths, relax.const(0, str(lengths.ty.dtype))))
    mean = call.emit(relax.op.divide(result, call.cast(lengths, dtype)))
    nothing = float("nan") if initial is None else nothing
    return call.emit(relax.op.where(empty, relax.const(nothing, dtype), mean))


def segment_of_each(call: TorchCall, limits: Any, entries: Any, first: int) -> Any:
    """As the function of the same name of all importers, of limits of shape (..., limits)."""
    batch = shape_of(limits)[:-1]
    rows = call.reshape(limits, (number_of(batch), shape_of(limits)[-1]))
    segments = segments_of(call.bb, rows, entries, first, call.origin)
    return call.reshape(segments, (*batch, entries))


def _checked(call: TorchCall, tensor: Any, limits: Any, entries: Any) -> Any:
    """``tensor``, after a check of the lengths or offsets, which may be those of no entries."""
    if is_empty(limits):
        return tensor
    if call["lengths"] is None:
        if limits.ty.ndim == 1:
            # Else the indices that are made of them are checked.
            tensor = call.expect_numbers("an offset", tensor, limits, NOT_NEGATIVE)
            last = call.compute(last_of, limits, name="last")
            tensor = call.expect_numbers("the last offset", tensor, last, AT_MOST, entries)
        return call.expect_numbers("an offset", tensor, limits, ASCENDING)
    tensor = call.expect_numbers("a length", tensor, limits, NOT_NEGATIVE)
    total = call.emit(relax.op.sum(limits, [-1]))
    rule = AT_MOST if call["unsafe"] else EQUAL
    what = f"the sum of lengths along dim {limits.ty.ndim - 1}"
    return call.expect_numbers(what, tensor, total, rule, entries)


def _reduced(call: TorchCall, limits: Any, initial: Any, axis: int, reduction: str) -> Any:
    """The segments of the data reduced together with initial values."""
    data = call["data"]
    entries = shape_of(data)[axis]
    by_offset = call["lengths"] is None
    if not by_offset:
        # The first segment begins at zero, where no other ends.
        limits = call.emit(relax.op.cumsum(limits, axis=axis, dtype="int64"))
    at = segment_of_each(call, limits, entries, -1 if by_offset else 0)
    ordering: tuple[Any, ...] = ()
    if axis == 0:
        rows = shape_of(initial)[0]
        ordering = order_of_segments(call.bb, limits, entries, rows, limits_are_ends=not by_offset)
    result = ops.index_put(
        initial,
        [*(call.compute(_coordinates, at, i, name="row") for i in range(axis)), at],
        data,
        list(range(axis + 1)),
        reduction,
        wrap_negative=False,
        # Entries before the first offset and behind the last segment belong to none.
        leaves_out=by_offset or bool(call["unsafe"]),
        operator=call.origin,
        ordering=ordering or None,
    )
    return call.emit(result)


def last_of(limits: te.Tensor) -> te.Tensor:
    """The last of some limits, a vector of one."""
    return te.compute((1,), lambda _: limits[limits.shape[0] - 1], name="last")


def _coordinates(at: te.Tensor, axis: int) -> te.Tensor:
    """Positions along one axis of ``at``, which broadcast over the others."""
    shape = [n if i == axis else 1 for i, n in enumerate(at.shape)]
    return te.compute(shape, lambda *place: place[axis].astype("int64"), name="row")


def _differences(limits: te.Tensor) -> te.Tensor:
    shape = (*limits.shape[:-1], limits.shape[-1] - 1)
    return te.compute(shape, lambda *at: limits(*at[:-1], at[-1] + 1) - limits(*at), name="length")
