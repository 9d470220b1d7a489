"""Which numbers are known to be where a row begins in a leaf, so that 32 bits may hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import ComputedUpdates, loads_of, substitute
from tvm_scatter.emit.expressions import counts_by_one, varies
from tvm_scatter.emit.row_parts import with_named_parts

_LARGEST = np.iinfo(np.int32).max


def fit_in_32_bits(updates: ComputedUpdates, parts: list[Any]) -> list[bool]:
    """Whether each part of updates is int64, but used for nothing but the begins of short rows.

    Whatever is read is inside its leaf, so the number is, too, but for the columns. Where nothing
    is read, because a condition does not hold, it does not matter what becomes of the number.

    Parameters
    ----------
    parts : list of expression
        As :func:`~tvm_scatter.emit.row_parts.row_parts` finds them.
    """
    analyzer = updates.analyzer()
    value, names = with_named_parts(updates, parts)
    return [str(name.ty.dtype) == "int64" and _only_begins(name, value, analyzer) for name in names]


def _only_begins(name: Any, value: Any, analyzer: Any) -> bool:
    def blank(load: Any) -> Any:
        return tirx.const(0, str(load.ty.dtype))

    if varies(tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, blank)), name):
        return False
    reads = [load for load in loads_of(value) if varies(load, name)]
    return all(_begins_short_row(load, name, analyzer) for load in reads)


def _begins_short_row(load: Any, name: Any, analyzer: Any) -> bool:
    """Whether the load is some columns behind the number, and the leaf has few elements."""
    [position], [size] = load.indices, load.source.shape
    if not isinstance(size, tirx.IntImm) or not counts_by_one(position, name):
        return False
    columns = analyzer.const_int_bound(substitute(position, {name: tirx.IntImm("int64", 0)}))
    return bool(columns.min_value >= 0 and int(size) + columns.max_value <= _LARGEST)
