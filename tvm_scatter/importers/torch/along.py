"""Gradients that are scatters along one axis after the other, to places known at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tvm_scatter.importers.shapes import shape_of, text
from tvm_scatter.ops import operators as ops

from .call import TorchCall


def known_sizes(call: TorchCall, what: str, sizes: Sequence[Any]) -> tuple[int, ...]:
    """Sizes that must be known at compile time."""
    if not all(isinstance(size, int) for size in sizes):
        raise call.error(
            f"{what} must be of a size that is known at compile time, not {text(sizes)}."
        )
    return tuple(sizes)


def add_along(
    call: TorchCall,
    gradient: Any,
    axis: int,
    extent: int,
    places: np.ndarray,
    weights: np.ndarray | None = None,
) -> Any:
    """Add up a gradient along one axis of the input: each entry at several places, with weights.

    Parameters
    ----------
    call : TorchCall
        The operator.
    gradient : relax.Expr
        Any shape, with ``entries`` positions along the axis.
    axis : int
        The axis, counted from the front.
    extent : int
        The size of the input along the axis.
    places : numpy.ndarray
        Integers of shape (entries, several): the positions in the input to which an entry is added.
        Negative ones and those from ``extent`` on are none of the input's: there it is lost.
    weights : numpy.ndarray, optional
        Factors of shape (entries, several) or (entries, 1).

    Returns
    -------
    result : relax.Expr
        The gradient's shape, with ``extent`` positions along the axis.
    """
    if weights is None and np.array_equal(places, np.arange(extent)[:, None]):
        return gradient
    dtype = str(gradient.ty.dtype)
    shape = shape_of(gradient)
    before, after = shape[:axis], shape[axis + 1 :]
    # What lies outside is added to a margin, which is cut off: no index is ever out of bounds.
    low = min(0, int(places.min()))
    size = max(extent, int(places.max()) + 1) - low
    values = call.reshape(gradient, (*before, shape[axis], 1, *after))
    if weights is not None:
        factors = relax.const(weights.reshape(*weights.shape, *(1 for _ in after)), "float64")
        values = call.emit(relax.op.multiply(values, call.cast(factors, dtype)))
    added = ops.index_put(
        call.emit(relax.op.zeros((*before, size, *after), dtype)),
        [relax.const(places - low, "int64")],
        values,
        [axis],
        "add",
        wrap_negative=False,
        operator=call.origin,
    )
    result = call.emit(added)
    if size == extent:
        return result
    return call.emit(relax.op.strided_slice(result, [axis], [-low], [extent - low]))
