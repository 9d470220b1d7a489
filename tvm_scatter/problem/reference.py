"""The semantics of scatter: a NumPy reference, which results are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .reductions import FLOATS
from .scatter_problem import ScatterProblem
from .sizes import Sizes

Array = np.ndarray[Any, Any]
_HALF = ("float16", "bfloat16")


def scatter_reference(
    problem: ScatterProblem, data: Array, indices: Sequence[Array], updates: Array
) -> Array:
    """Compute a problem whose sizes are all static.

    Parameters
    ----------
    problem : ScatterProblem
        Its bounds policy is ignored: an update with a bad index has no effect, as under ``"drop"``.
    data : numpy.ndarray
        As many elements as ``problem.data_size``, in any shape.
    indices : sequence of numpy.ndarray
        One for each component, or a single one if the problem is interleaved.
    updates : numpy.ndarray
        The updates before broadcasting.

    Returns
    -------
    out : numpy.ndarray
        A new array of the shape and type of ``data``. Sums and products of 16-bit floats are
        computed in single precision and rounded once. Without a reduction, the last of several
        updates wins. A NaN in minima and maxima has the bits of
        :meth:`~tvm_scatter.problem.reductions.Reduction.last_in_order`.
    """
    sizes = Sizes.of(problem)
    dtype = problem.data_dtype
    place, valid = destinations(problem, indices)
    b, _, s = np.ogrid[: sizes.batch, : sizes.count, : sizes.slice]
    at = (b * sizes.extent + place) * sizes.slice + s
    box = (sizes.batch, sizes.count, sizes.slice)
    valid = np.broadcast_to(valid, box).reshape(-1)
    at = np.broadcast_to(at, box).reshape(-1)[valid]
    values = _broadcast_updates(problem, sizes, updates).reshape(-1)[valid]

    out = np.array(data).reshape(-1)
    reduces = problem.reduces
    if reduces.ufunc is None:
        # NumPy defines no order for repeated positions, so only the last update of each is
        # assigned.
        last = np.full(out.size, -1, np.int64)
        np.maximum.at(last, at, np.arange(at.size))
        touched = last >= 0
        out[touched] = values[last[touched]]
        return out.reshape(data.shape)

    touched = np.zeros(out.size, bool)
    touched[at] = True
    if reduces.is_extreme and dtype in FLOATS:
        _extremes(problem, reduces.ufunc, out, touched, at, values)
        return out.reshape(data.shape)

    wide = np.float32 if dtype in _HALF else out.dtype
    total = out.astype(wide)
    if not problem.include_self:
        total[touched] = np.asarray(reduces.identity(dtype), wide)
    with np.errstate(all="ignore"):
        reduces.ufunc.at(total, at, values.astype(wide))
        if reduces.needs_count and dtype != "bool":
            count = np.bincount(at, minlength=out.size)[touched] + int(problem.include_self)
            total[touched] = _divide(total[touched], count, dtype)
        out[touched] = total[touched].astype(out.dtype)
    return out.reshape(data.shape)


def destinations(problem: ScatterProblem, indices: Sequence[Array]) -> tuple[Array, Array]:
    """The place along the scatter axis of each index, and whether the index is valid.

    Returns
    -------
    place, valid : numpy.ndarray
        Of shape (batch or 1, count, slice or 1); ``place`` is 0 where not valid.
    """
    sizes = Sizes.of(problem)
    shape = (
        sizes.batch if problem.index_batch else 1,
        sizes.count,
        sizes.slice if problem.index_slice else 1,
    )
    components = len(problem.extents)
    if problem.interleaved:
        tuples = np.asarray(indices[0]).reshape(-1, components)
        indices = [tuples[:, component] for component in range(components)]
    place = np.zeros(shape, np.int64)
    valid = np.ones(shape, bool)
    for index, extent in zip(indices, sizes.extents, strict=True):
        index = np.asarray(index).astype(np.int64).reshape(shape)
        if problem.wrap_negative:
            index = np.where(index < 0, index + extent, index)
        inside = (index >= 0) & (index < extent)
        valid &= inside
        place = place * extent + np.where(inside, index, 0)
    return np.where(valid, place, 0), valid


def _broadcast_updates(problem: ScatterProblem, sizes: Sizes, updates: Array) -> Array:
    shape = (
        sizes.batch if problem.update_batch else 1,
        sizes.count if problem.update_count else 1,
        sizes.slice if problem.update_slice else 1,
    )
    box = (sizes.batch, sizes.count, sizes.slice)
    return np.broadcast_to(np.asarray(updates).reshape(shape), box)


def _extremes(
    problem: ScatterProblem,
    ufunc: np.ufunc,
    out: Array,
    touched: Array,
    at: Array,
    values: Array,
) -> None:
    """Write minima or maxima of floats to ``out``, in IEEE 754's total order."""
    signed = f"i{out.itemsize}"
    last = problem.reduces.last_in_order(problem.data_dtype)
    # A signaling NaN is no error here.
    with np.errstate(invalid="ignore"):
        is_nan, kept = np.isnan(values), np.isnan(out) & problem.include_self
    keys = _in_order(np.where(is_nan, np.array(last, signed), values.view(signed)))
    total = _in_order(out.view(signed))
    if not problem.include_self:
        start = np.array(problem.reduces.identity(problem.data_dtype), out.dtype)
        total[touched] = _in_order(start.view(signed))
    ufunc.at(total, at, keys)
    written = touched & ~kept
    out.view(signed)[written] = _in_order(total)[written]


def _in_order(bits: Array) -> Array:
    """Map the bits of floats to integers in the same total order; its own inverse."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _divide(total: Array, count: Array, dtype: str) -> Array:
    if dtype in FLOATS:
        return total / count.astype(total.dtype)
    if total.dtype.kind == "u":
        return total // count.astype(np.uint64)
    return np.floor_divide(total.astype(np.int64), count)
