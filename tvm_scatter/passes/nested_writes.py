"""Rewrites ``x[i, j] = v`` and ``x[a:b, j] = v`` as one scatter.

Front ends emit three steps: read row ``i``, write its element ``j``, write the row back. With a
slice of rows it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import same_shape, static_shape
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.known_values import known_values, numbers

from .functions import with_values
from .normalised_scatters import NormalisedRows, normalised

_VIEWS = ("relax.reshape", "relax.expand_dims", "relax.squeeze")


def flatten_nested_writes(mod: tvm.IRModule, function: relax.Function) -> relax.Function:
    """Write elements directly into the data, at any depth of nested reads and writes of rows."""
    while True:
        definitions = Definitions.of(function)
        found = {}
        for var, value in definitions.values.items():
            if is_scatter(value) and strategy_of(value.args[0])[1] is not None:
                call = ScatterCall.from_call(value)
                inner = _inner_write(call, definitions.values)
                if inner is not None and definitions.reaches_all(inner.args, var):
                    found[var] = inner
        # Each round removes one level of nesting.
        if not found:
            return function
        function = with_values(mod, function, found)


def _inner_write(call: ScatterCall, values: Mapping[Any, Any]) -> relax.Call | None:
    """The single write that replaces a row's read, the write of its part, and its write back."""
    outer = normalised(call, values)
    if not isinstance(outer, NormalisedRows) or not outer.replaces or outer.positions is None:
        return None
    if len(outer.positions) != 1:
        return _write_in_slice(outer, values)
    shape = static_shape(outer.data) or []
    extents = numbers([shape[axis] for axis in outer.axes]) or ()
    places = [int(place) for place in np.unravel_index(int(outer.positions[0]), extents)]
    fixed = dict(zip(outer.axes, places, strict=True))
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    inner = _written(_behind_views(call.updates, values), outer, values)
    if inner is None or not same_shape(static_shape(inner.data), [shape[at] for at in free]):
        return None
    if _row_read(_behind_views(inner.data, values), outer.data, values) != fixed:
        return None
    vectors = {axis: relax.const(np.array([place]), "int64") for axis, place in fixed.items()}
    indices = zip(inner.axes, inner.call.indices, strict=True)
    vectors |= {free[axis]: index for axis, index in indices}
    axes = sorted(vectors)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return None
    return _written_to(outer.data, [vectors[axis] for axis in axes], axes, inner)


def _written(part: Any, outer: NormalisedRows, values: Mapping[Any, Any]) -> NormalisedRows | None:
    """The scatter that computed ``part``, if its attributes are those of the outer scatter."""
    call: Any = values.get(part)
    if not is_scatter(call) or may_write(call):
        return None
    inner = normalised(ScatterCall.from_call(call), values)
    if not isinstance(inner, NormalisedRows):
        return None
    # The reduction may differ: the outer scatter writes back what the inner one has reduced.
    return inner if inner.call.asks_as(outer.call, "reduction", "include_self") else None


def _write_in_slice(outer: NormalisedRows, values: Mapping[Any, Any]) -> relax.Call | None:
    """As :func:`_inner_write`, for a slice of rows that is read, changed and written back."""
    rows, axis = outer.positions, outer.axes[0]
    if rows is None or len(outer.axes) > 1 or not len(rows) or (np.diff(rows) != 1).any():
        return None
    inner = _written(outer.call.updates, outer, values)
    if inner is None or inner.axes[0] != axis + 1:
        return None
    if _slice_read(inner.data, outer.data, values) != (axis, rows[0], rows[-1] + 1):
        return None
    vector = relax.const(rows.reshape(-1, *[1] * len(inner.common)), "int64")
    indices = [vector, *inner.call.indices]
    return _written_to(outer.data, indices, [axis, *inner.axes], inner)


def _written_to(
    data: Any, indices: list[Any], axes: list[int], inner: NormalisedRows
) -> relax.Call:
    """The write ``inner`` with other data, indices and axes."""
    written = inner.call.replace(
        data=data, indices=tuple(indices), axes=tuple(axes), in_range=False, known=""
    )
    return written.to_call()


def _behind_views(tensor: Any, values: Mapping[Any, Any]) -> Any:
    """The tensor behind reshapes and the like."""
    while True:
        call: Any = values.get(tensor) if isinstance(tensor, relax.Var) else None
        if operator_of(call) not in _VIEWS:
            return tensor
        tensor = call.args[0]


def _row_read(row: Any, data: Any, values: Mapping[Any, Any]) -> dict[int, int] | None:
    """For a row taken from the data: each axis taken and the position on it, else ``None``."""
    taken: list[tuple[int, int]] = []
    while not row.same_as(data):
        call: Any = values.get(row)
        if operator_of(call) != "relax.take":
            return None
        at = known_values(call.args[1], values)
        if call.attrs.axis is None or at is None or at.shape != ():
            return None
        row = call.args[0]
        taken.insert(0, (int(call.attrs.axis) % row.ty.ndim, int(at)))
    left = list(range(data.ty.ndim))
    return {left.pop(axis): place for axis, place in taken}


def _slice_read(part: Any, data: Any, values: Mapping[Any, Any]) -> tuple[int, int, int] | None:
    """For a slice of the data along one axis: the axis, its begin and its end, else ``None``."""
    call: Any = values.get(part) if isinstance(part, relax.Var) else None
    if operator_of(call) != "relax.strided_slice":
        return None
    if not call.args[0].same_as(data):
        return None
    if not all(isinstance(each, relax.Tuple) for each in call.args[1:]):
        return None
    fields = [
        numbers([getattr(each, "value", each) for each in operand.fields])
        for operand in call.args[1:]
    ]
    if any(each is None or len(each) != 1 for each in fields):
        return None
    axis, begin, end, *stride = [each[0] for each in fields if each is not None]
    return (axis, begin, end) if all(each == 1 for each in stride) else None
