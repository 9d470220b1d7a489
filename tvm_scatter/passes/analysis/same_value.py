"""Whether two expressions certainly have one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvm_scatter.lowering.inlined import RESHAPES
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.expectations import EXPECT_INDICES
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.shapes import same_shape, static_shape

from .effects import may_write


class SameValue:
    """Compares variables by what they are bound to.

    Exporters write the same expression once for each use: ``edges[1]`` in every layer.

    Parameters
    ----------
    values : mapping
        The expression that each variable is bound to, as in
        :class:`~tvm_scatter.passes.analysis.definitions.Definitions`.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self._values = values
        self._known: dict[tuple[Any, Any], bool] = {}

    def __call__(self, left: Any, right: Any) -> bool:
        left, right = self._given(left), self._given(right)
        if left.same_as(right):
            return True
        if not (isinstance(left, relax.Var) and isinstance(right, relax.Var)):
            return self._same(self._values.get(left, left), self._values.get(right, right))
        if (left, right) not in self._known:
            self._known[left, right] = self._reshaped(left, right) or self._bound(left, right)
        return self._known[left, right]

    def _reshaped(self, left: Any, right: Any) -> bool:
        """Whether both are one tensor in one shape, however they came to have it."""
        roots = [self._root(each) for each in (left, right)]
        shapes = [static_shape(each) for each in (left, right)]
        if roots == [left, right] or None in shapes:
            return False
        return same_shape(*shapes) and self(*roots)

    def _root(self, tensor: Any) -> Any:
        """What a tensor was before it got other shapes."""
        while operator_of(self._values.get(tensor)) in RESHAPES:
            tensor = self._values[tensor].args[0]
        return tensor

    def _bound(self, left: Any, right: Any) -> bool:
        found = (self._values.get(left), self._values.get(right))
        return None not in found and self._same(*found)

    def _given(self, tensor: Any) -> Any:
        """What a tensor was before its indices were checked."""
        while operator_of(self._values.get(tensor)) == EXPECT_INDICES:
            tensor = index_tensors(self._values[tensor])[0]
        return tensor

    def _same(self, left: Any, right: Any) -> bool:
        if isinstance(left, relax.Tuple) and isinstance(right, relax.Tuple):
            return self._all_same(left.fields, right.fields)
        if isinstance(left, relax.TupleGetItem) and isinstance(right, relax.TupleGetItem):
            return left.index == right.index and self(left.tuple_value, right.tuple_value)
        if not (isinstance(left, relax.Call) and isinstance(right, relax.Call)):
            return bool(tvm_ffi.structural_equal(left, right))
        return (
            isinstance(left.op, tvm.ir.Op)
            and left.op.same_as(right.op)
            and not may_write(left)
            and bool(tvm_ffi.structural_equal(left.attrs, right.attrs))
            and self._all_same(left.args, right.args)
        )

    def _all_same(self, left: Any, right: Any) -> bool:
        return len(left) == len(right) and all(map(self, left, right))
