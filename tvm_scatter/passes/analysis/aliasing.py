"""Which variables of a function may share memory, and which may hold foreign memory.

Foreign memory is that of constants and of unknown owners. The analysis is conservative: variables
in different memory may be reported as sharing, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import static_shape

from .bindings import Binding
from .created import ALLOCATION, CREATION
from .known_values import numbers
from .sharing import is_tensor, leaves, shared_operands

#: Up to this many elements, TVM may evaluate a tensor at compile time and keep it as a constant.
_FOLDED_ELEMENTS = 1024


class Storage:
    """Sets of variables that may share memory. A pass joins sets when it makes a call in place.

    Parameters
    ----------
    function : relax.Function
        The function.
    bindings : iterable of Binding
        Its bindings, or the first of them. The rest must be added later with :meth:`add`, in order.
    """

    def __init__(self, function: relax.Function, bindings: Iterable[Binding]) -> None:
        self._parents: dict[Any, Any] = {}
        self._members: dict[Any, set[Any]] = {}
        self._foreign: set[Any] = set()
        self._folded: set[Any] = set()
        self.parameters = set(function.params)
        for binding in bindings:
            self.add(binding)

    def members(self, var: Any) -> frozenset[Any]:
        """The variables that may share memory with ``var``, itself included."""
        return frozenset(self._members.get(self._root(var), {var}))

    def is_foreign(self, var: Any) -> bool:
        """Whether the memory may belong to a constant or to an unknown owner."""
        return bool(self._foreign & self.members(var))

    def join(self, left: Any, right: Any) -> None:
        """Record that two variables may share memory."""
        into, from_ = self._root(left), self._root(right)
        if into.same_as(from_):
            return
        members = self._members.setdefault(into, {into})
        members |= self._members.pop(from_, {from_})
        self._parents[from_] = into

    def _root(self, var: Any) -> Any:
        while var in self._parents:
            var = self._parents[var]
        return var

    def add(self, binding: Binding) -> None:
        """Record with which earlier variables a new binding may share memory."""
        var, value = binding.var, binding.value
        if isinstance(value, relax.Function):
            # A closure keeps the variables that it captures, and may run at any time.
            self._foreign |= {var, *binding.reads}
            return
        if self._becomes_constant(value):
            self._folded.add(var)
            self._foreign.add(var)
        if isinstance(value, relax.Call):
            self._add_call(var, value)
            return
        if isinstance(value, relax.If):
            branches = (value.true_branch.body, value.false_branch.body)
            if any(not isinstance(branch, relax.Var) for branch in branches):
                self._foreign.add(var)
        if isinstance(value, tvm.ir.GenericConst) or _holds_constant(value):
            self._foreign.add(var)
        for read in binding.reads:
            self.join(var, read)

    def _add_call(self, var: Any, call: relax.Call) -> None:
        shared = shared_operands(var, call, self._folded)
        if shared is None:
            shared = [leaf for leaf in leaves(call.args) if isinstance(leaf, relax.Var)]
            self._foreign.add(var)
        for leaf in shared:
            if isinstance(leaf, relax.Var):
                self.join(var, leaf)
            else:
                self._foreign.add(var)

    def _becomes_constant(self, value: Any) -> bool:
        """Whether TVM may evaluate an expression at compile time."""
        if isinstance(value, tvm.ir.GenericConst):
            return True
        if not isinstance(value, relax.Call):
            return isinstance(value, relax.Var) and value in self._folded
        tensors = [leaf for leaf in leaves(value.args) if is_tensor(leaf) and not _is_shape(leaf)]
        name = operator_of(value)
        if name == ALLOCATION:
            # There is nothing in it yet.
            return False
        if not tensors or name in CREATION:
            size = _elements(value)
            return size is not None and size <= _FOLDED_ELEMENTS
        return all(
            isinstance(leaf, tvm.ir.GenericConst) or leaf in self._folded for leaf in tensors
        )


def _is_shape(leaf: Any) -> bool:
    """Whether a leaf has sizes only: if they are known, TVM evaluates what is computed from it."""
    return isinstance(leaf.ty, relax.ShapeType)


def _holds_constant(value: Any) -> bool:
    return isinstance(value, relax.Tuple) and any(
        isinstance(leaf, tvm.ir.GenericConst) for leaf in leaves([value])
    )


def _elements(tensor: Any) -> int | None:
    static = numbers(static_shape(tensor))
    return None if static is None else int(np.prod(static, dtype=np.int64))
