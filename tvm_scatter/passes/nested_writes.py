"""``x[i, j] = v`` as one scatter.

It arrives as a read of the row i, a write of its element j, and a write of the whole row back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.legalize import strategy_of
from tvm_scatter.ops import INDEX_PUT, index_put

from .broadcast_source import same_size, static_shape
from .definitions import Definitions
from .fold_broadcast_index import is_scatter
from .known_values import known_values, numbers
from .links import RowLink, link_of

_VIEWS = ("relax.reshape", "relax.expand_dims", "relax.squeeze")


def flatten_nested_writes(mod: tvm.IRModule, function: relax.Function) -> relax.Function:
    """Write elements where they are, however many reads and writes of rows lie around them."""
    while True:
        definitions = Definitions.of(function)
        found = {}
        for var, value in definitions.values.items():
            if is_scatter(value) and strategy_of(value)[1] is not None:
                inner = _inner_write(value, definitions.values)
                if inner is not None and definitions.reaches_all(inner.args, var):
                    found[var] = inner
        # A write inside of another that is rewritten waits for the next round.
        if not found:
            return function
        rewritten = _Rewriter(mod, found).visit_expr(function)
        function = relax.analysis.remove_all_unused(rewritten)


def _inner_write(call: relax.Call, values: Mapping[Any, Any]) -> relax.Call | None:
    """The write of a part of a row that this is the write of the row after, on the whole data."""
    outer = link_of(call, values)
    if not isinstance(outer, RowLink) or outer.reduction != "update":
        return None
    if outer.positions is None or len(outer.positions) != 1:
        return None
    shape = static_shape(outer.data) or []
    extents = numbers([shape[axis] for axis in outer.axes]) or ()
    places = [int(place) for place in np.unravel_index(int(outer.positions[0]), extents)]
    fixed = dict(zip(outer.axes, places, strict=True))
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    written = values.get(_behind_views(call.args[2], values))
    if not isinstance(written, relax.Call) or getattr(written.op, "name", "") != INDEX_PUT:
        return None
    inner = link_of(written, values)
    if not isinstance(inner, RowLink) or not _has_shape(inner.data, [shape[at] for at in free]):
        return None
    if _row_read(_behind_views(inner.data, values), outer.data, values) != fixed:
        return None
    vectors = {axis: relax.const(np.array([place]), "int64") for axis, place in fixed.items()}
    vectors |= {free[at]: each for at, each in zip(inner.axes, written.args[1].fields, strict=True)}
    axes = sorted(vectors)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return None
    attrs = written.attrs
    return index_put(
        outer.data,
        [vectors[axis] for axis in axes],
        written.args[2],
        axes,
        inner.reduction,
        include_self=bool(attrs["include_self"]),
        wrap_negative=bool(attrs["wrap_negative"]),
        unique=bool(attrs["unique"]),
        operator=str(attrs["operator"]),
    )


def _behind_views(tensor: Any, values: Mapping[Any, Any]) -> Any:
    """The variable that a tensor is in another shape."""
    while True:
        call = values.get(tensor) if isinstance(tensor, relax.Var) else None
        if not isinstance(call, relax.Call) or getattr(call.op, "name", "") not in _VIEWS:
            return tensor
        tensor = call.args[0]


def _row_read(row: Any, data: Any, values: Mapping[Any, Any]) -> dict[int, int] | None:
    """The axes of the data at which a variable is read off it, one position each, and where."""
    taken: list[tuple[int, int]] = []
    while not row.same_as(data):
        call = values.get(row)
        if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.take":
            return None
        at = known_values(call.args[1], values)
        if call.attrs.axis is None or at is None or at.shape != ():
            return None
        row = call.args[0]
        taken.insert(0, (int(call.attrs.axis) % row.ty.ndim, int(at)))
    left = list(range(data.ty.ndim))
    return {left.pop(axis): place for axis, place in taken}


def _has_shape(tensor: Any, shape: list[Any]) -> bool:
    current = static_shape(tensor)
    if current is None or len(current) != len(shape):
        return False
    return all(map(same_size, current, shape))


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, found: dict[Any, relax.Call]) -> None:
        super().__init__(mod)
        self.found = found

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.found:
            binding = relax.VarBinding(binding.var, self.found[binding.var])
        super().visit_var_binding_(binding)
