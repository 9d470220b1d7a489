"""Sums of a few rows, which are computed where they are read.

A layer whose edges weight some bases adds up four rows for each edge. To write the sums and to read
them again takes as long as to scatter them.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import static_shape

_SUM = "relax.sum"
#: The most terms, and the fewest elements of a row.
_MOST_TERMS, _LEAST_ROW = 8, 16
#: Sums of narrower floats are rounded once, not after each term.
_DTYPES = ("float32", "float64")


def is_short_sum(call: Any) -> bool:
    """Whether a call adds up a few rows, each element by itself."""
    return is_sum(call) and reason_to_add_apart(call) is None


def is_sum(call: Any) -> bool:
    """Whether a call adds up elements of a tensor."""
    return operator_of(call) == _SUM


def reason_to_add_apart(call: relax.Call) -> str | None:
    """Why a sum is not computed where it is read, as a clause; ``None`` if it may be."""
    what = _not_added(call)
    return None if what is None else f"{what} are added up apart"


def _not_added(call: relax.Call) -> str | None:
    """What a sum adds up, if it is not a few rows."""
    shape, axes = static_shape(call.args[0]), call.attrs.axis
    if str(call.ty.dtype) not in _DTYPES:
        return f"elements of {call.ty.dtype}"
    if not shape:
        return "tensors of unknown shape"
    if axes is None or len(axes) != 1:
        return "several axes"
    if int(axes[0]) % len(shape) == len(shape) - 1:
        return "the elements of a row"
    terms, row = shape[int(axes[0])], shape[-1]
    if not isinstance(terms, int | tirx.IntImm):
        return "an unknown number of rows"
    if not 0 < int(terms) <= _MOST_TERMS:
        return f"{int(terms)} rows, other than 1 to {_MOST_TERMS},"
    if not isinstance(row, int | tirx.IntImm):
        return "rows of unknown length"
    return None if int(row) >= _LEAST_ROW else f"rows of fewer than {_LEAST_ROW} elements"


def added(call: relax.Call, rows: te.Tensor) -> te.Tensor:
    """The sum that a call is of, term by term."""
    axis, keeps = int(call.attrs.axis[0]) % len(rows.shape), bool(call.attrs.keepdims)
    shape = [*rows.shape[:axis], *([1] if keeps else []), *rows.shape[axis + 1 :]]

    def total(*at: Any) -> Any:
        rest = at[axis + keeps :]
        terms = (rows(*at[:axis], term, *rest) for term in range(int(rows.shape[axis])))
        return functools.reduce(operator.add, terms)

    return te.compute(shape, total, name="added")
