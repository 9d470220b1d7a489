"""What is known of the integer tensors of a function: ranges, distinct elements, order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.emit.parameters import SEARCHES
from tvm_scatter.lowering.inlined import PRODUCERS, operands_of
from tvm_scatter.ops.called import CALL_TIR, operator_of
from tvm_scatter.ops.shapes import is_one, static_shape

from .bindings import Bindings
from .definitions import Definitions
from .effects import may_write
from .element_facts import Operand, element_facts
from .index_facts import IndexFacts
from .index_rules import RULES
from .index_rules.values import of_values
from .integer_ranges import Ranges, Unproven, limits, number
from .searches import of_searching_function

#: Rules of these operators only pass on what is known, and are no reason for it.
_SILENT = frozenset(
    f"relax.{name}"
    for name in (
        *("astype", "broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape", "squeeze"),
        *("strided_slice", "split", "call_tir"),
    )
)
#: Operators on integers whose results may have more bits than the type.
_MAY_WRAP = frozenset(
    f"relax.{name}"
    for name in (
        *("abs", "add", "astype", "left_shift", "multiply", "negative", "power", "square"),
        *("subtract", "call_tir"),
    )
)
#: Operators whose code a compiler may see together with that of their operands.
_ELEMENTWISE = PRODUCERS | _SILENT | _MAY_WRAP | {"relax.take", "relax.gather_elements"}


class IndexAnalysis:
    """What holds for the integer tensors of a function, for all values of its inputs.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, which has the functions that the function calls.
    function : relax.Function
        The function. What is known of values in branches is forgotten behind them, and nothing is
        known inside of nested functions.
    """

    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        self._mod = mod
        bindings = Bindings(function)
        self.ranges = Ranges(_sizes(function, bindings))
        self._values = Definitions.of(function).values
        self._facts: dict[Any, IndexFacts | None] = {}
        #: Variables whose elements may have wrapped around where they were computed. Compilers take
        #: it that nothing does, and what is chosen by such elements may be anything.
        self._wrapped: set[Any] = set()
        self._tuples: dict[Any, Sequence[Any]] = {}
        overwrites = any(may_write(each.value) for each in bindings)
        for binding in bindings:
            # A value that is overwritten later, and read then, is not what it was bound to.
            cast = not overwrites and isinstance(binding.value, relax.Var)
            if cast or binding.var in self._values:
                self._learn(binding.var, binding.value)

    def __call__(self, tensor: Any) -> IndexFacts | None:
        """What is known of a tensor; ``None`` if it is none of integers."""
        try:
            return self.of(tensor)
        except Unproven:
            return None

    def of(self, tensor: Any) -> IndexFacts:
        """What is known of a tensor.

        Raises
        ------
        Unproven
            If it is none of integers.
        """
        found = self._facts.get(tensor) if isinstance(tensor, relax.Var) else None
        if found is None and isinstance(tensor, tvm.ir.GenericConst):
            found = of_values(np.asarray(tensor.value.numpy())).but(because="a constant")
        if isinstance(tensor, relax.TupleGetItem):
            return self.of(self.fields(tensor.tuple_value)[tensor.index])
        if isinstance(tensor, IndexFacts):
            return tensor
        if found is not None:
            return found
        type_ = getattr(tensor, "ty", None)
        if not isinstance(type_, relax.TensorType):
            raise Unproven
        return _settled(IndexFacts(limits(str(type_.dtype))), type_)

    def fields(self, value: Any) -> Sequence[Any]:
        """The fields of a tuple: tensors, or what is known of them.

        Raises
        ------
        Unproven
            If nothing is known of them.
        """
        if isinstance(value, relax.Tuple):
            return list(value.fields)
        if isinstance(value, relax.Var) and value in self._tuples:
            return self._tuples[value]
        raise Unproven

    def _learn(self, var: Any, value: Any) -> None:
        if self._is_computed_from_wrapped(value):
            self._wrapped.add(var)
            return
        try:
            if isinstance(value, relax.Tuple):
                self._tuples[var] = list(value.fields)
            elif isinstance(value, relax.Var) and value in self._tuples:
                self._tuples[var] = self._tuples[value]
            elif isinstance(var.ty, relax.TensorType):
                self._facts[var] = self._checked(self._of_value(value), var.ty)
            elif isinstance(value, relax.Call) and isinstance(var.ty, relax.TupleType):
                self._tuples[var] = self._checked_fields(value, var.ty)
        except Unproven:
            if isinstance(value, relax.Call) and _may_wrap(value):
                self._wrapped.add(var)

    def _is_computed_from_wrapped(self, value: Any) -> bool:
        """Whether an element is one that may have wrapped around, or is computed from some."""
        if isinstance(value, relax.Var):
            return value in self._wrapped
        if not isinstance(value, relax.Call) or operator_of(value) not in _ELEMENTWISE:
            return False
        return any(operand in self._wrapped for operand in operands_of(value))

    def _checked_fields(self, call: relax.Call, type_: relax.TupleType) -> list[Any]:
        found = self._of_call(call)
        if isinstance(found, IndexFacts):
            raise Unproven
        return [
            None if facts is None else self._checked(facts, field)
            for facts, field in zip(found, type_.fields, strict=True)
        ]

    def _of_value(self, value: Any) -> IndexFacts:
        if not isinstance(value, relax.Call):
            return self.of(value)
        found = self._of_call(value)
        if not isinstance(found, IndexFacts):
            raise Unproven
        return found

    def _of_call(self, call: relax.Call) -> IndexFacts | Sequence[IndexFacts | None]:
        name = operator_of(call)
        if name == CALL_TIR:
            found: Any = self._of_function(call)
        elif name in RULES:
            found = RULES[name](call, self)
        else:
            raise Unproven
        if isinstance(found, IndexFacts):
            return _because(found, name)
        return [None if each is None else _because(each, name) for each in found]

    def _of_function(self, call: relax.Call) -> IndexFacts:
        function, arguments = self._mod[call.args[0]], call.args[1]
        if not isinstance(arguments, relax.Tuple) or not isinstance(call.ty, relax.TensorType):
            raise Unproven
        given = [self._argument(each) for each in arguments.fields]
        if SEARCHES in (function.attrs or {}):
            return of_searching_function([each.shape for each in given], given[1].facts)
        return element_facts(function, given, _shape(call), self.ranges)

    def _argument(self, argument: Any) -> Any:
        """An argument of a function of TIR: a tensor or a size."""
        if isinstance(argument.ty, relax.TensorType):
            return Operand(self(argument), _shape(argument))
        return number(argument)

    def _checked(self, facts: IndexFacts, type_: relax.TensorType) -> IndexFacts:
        """The facts, if the type can hold the range."""
        if not self.ranges.fit(facts.range, str(type_.dtype)):
            raise Unproven
        return _settled(facts.but(range=self.ranges.simplified(facts.range)), type_)


def _shape(tensor: Any) -> list[Any]:
    shape = static_shape(tensor)
    if shape is None:
        raise Unproven
    return shape


def _because(facts: IndexFacts, name: str) -> IndexFacts:
    silent = facts.because and name in _SILENT
    return facts if silent else facts.but(because=name.rpartition(".")[2])


def _settled(facts: IndexFacts, type_: relax.TensorType) -> IndexFacts:
    """With what holds for every tensor of a type: one of a single element is in any order."""
    shape = getattr(type_.shape, "values", None)
    if shape is None or not all(map(is_one, shape)):
        return facts
    return facts.but(distinct=frozenset(range(len(shape))), ascending=True, uniform=True)


def _sizes(function: relax.Function, bindings: Bindings) -> set[Any]:
    """The variables that are a size of a tensor as they are."""
    types = [each.ty for each in (*function.params, *(binding.var for binding in bindings))]
    return {
        size
        for type_ in types
        for tensor in _tensors(type_)
        for size in getattr(tensor.shape, "values", None) or ()
        if isinstance(size, tvm.ir.Var)
    }


def _tensors(type_: Any) -> list[Any]:
    if isinstance(type_, relax.TupleType):
        return [each for field in type_.fields for each in _tensors(field)]
    return [type_] if isinstance(type_, relax.TensorType) else []


def _may_wrap(call: relax.Call) -> bool:
    """Whether its results may have more bits than their type. What a float is cast to has not."""
    if operator_of(call) not in _MAY_WRAP:
        return False
    return any("int" in str(each.ty.dtype) for each in operands_of(call))
