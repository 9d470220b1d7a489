"""Orders of updates that need no sort: those of constants, and of indices that ascend."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_scatter.emit.ordering import DTYPE
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.ordering import ORDER
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis


def is_order(value: Any) -> bool:
    """Whether an expression is a call of :func:`tvm_scatter.order`."""
    return operator_of(value) == ORDER


def ascends(index: Any, known: IndexAnalysis) -> bool:
    """Whether the elements of an index certainly ascend, and none is negative."""
    facts = known(index)
    return facts is not None and facts.ascending and known.ranges.at_most(0, facts.range.low)


def constant_order(index: Any, extent: Any, wrap_negative: bool) -> relax.Tuple | None:
    """The permutation and the offsets of a constant; ``None`` if the index is none.

    Also ``None`` if an index is out of bounds, or the extent is symbolic.
    """
    constant = isinstance(index, tvm.ir.GenericConst) and isinstance(extent, int | tirx.IntImm)
    if not constant:
        return None
    given, size = np.asarray(index.value.numpy()).reshape(-1), int(extent)
    values = given.astype("int64")
    if (values != given).any():
        return None
    places = np.where(values < 0, values + size, values) if wrap_negative else values
    if not values.size or places.min() < 0 or places.max() >= size:
        return None
    permutation = np.argsort(places, kind="stable")
    offsets = np.searchsorted(places[permutation], np.arange(size + 1))
    return relax.Tuple([relax.const(each.astype(DTYPE), DTYPE) for each in (permutation, offsets)])
