"""What is known of a tensor that a function computes element by element: one expression for each.

Importers write such functions for what no operator of Relax says, such as the first ``k`` entries
of a sort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvm_scatter.emit.computed_updates import BRANCH, function_name

from .index_facts import ELEMENTWISE, IndexFacts
from .integer_ranges import Range, Ranges, Unproven, limits, number

_OPERATORS = {
    tirx.Add: "add",
    tirx.Sub: "subtract",
    tirx.Mul: "multiply",
    tirx.FloorDiv: "floor_divide",
    tirx.FloorMod: "floor_mod",
    tirx.Div: "divide",
    tirx.Mod: "mod",
    tirx.Min: "minimum",
    tirx.Max: "maximum",
}
#: The deepest expression that is looked at.
_DEEPEST = 50


@dataclass(frozen=True)
class Operand:
    """A tensor that a function reads.

    Attributes
    ----------
    facts : IndexFacts or None
        What is known of it; ``None`` if it is none of integers.
    shape : sequence of int or expression
        Its shape, in the sizes of the caller.
    """

    facts: IndexFacts | None
    shape: Sequence[Any]


def element_facts(
    function: Any, arguments: Sequence[Any], result: Sequence[Any], ranges: Ranges
) -> IndexFacts:
    """What is known of the only result of a function of TIR.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        Its parameters are the arguments and the result.
    arguments : sequence of Operand, int or expression
        The tensors and sizes that it is given.
    result : sequence of int or expression
        The shape of the result.

    Raises
    ------
    Unproven
        If it computes its result otherwise, or may read outside of an operand.
    """
    parameters = list(function.params)
    if len(parameters) != len(arguments) + 1:
        raise Unproven
    variables, value = _stored(function, parameters[-1])
    known = _sizes(parameters, [*arguments, Operand(None, result)])
    long = [axis for axis, size in enumerate(result) if number(size) != 1]
    for axis, (variable, size) in enumerate(zip(variables, result, strict=True)):
        last = ranges.add(Range(0, number(size)), Range(-1, -1)).high
        known[variable] = IndexFacts(
            Range(0, last), frozenset([axis]), long == [axis], uniform=axis not in long
        )
    operands = {
        parameter: each
        for parameter, each in zip(parameters, arguments, strict=False)
        if isinstance(each, Operand)
    }
    return _Element(known, operands, ranges).of(value)


def _stored(function: Any, result: Any) -> tuple[list[Any], Any]:
    """The variables of a loop nest over all of the result, and the expression of each element.

    Raises
    ------
    Unproven
        If the function does anything else.
    """
    if not isinstance(function.body, s_tir.SBlockRealize):
        raise Unproven
    root, loops = function.body.block, []
    inner = root.body
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if root.iter_vars or root.alloc_buffers or not isinstance(inner, s_tir.SBlockRealize):
        raise Unproven
    block, store = inner.block, inner.block.body
    variables = [each.var for each in block.iter_vars]
    whole = (
        isinstance(store, tirx.BufferStore)
        and block.init is None
        and store.buffer.same_as(result)
        and _are(store.indices, variables)
        and _are(inner.iter_values, [loop.loop_var for loop in loops])
        and len(loops) == len(result.shape)
        and all(
            number(loop.min) == 0 and tvm_ffi.structural_equal(loop.extent, size)
            for loop, size in zip(loops, result.shape, strict=True)
        )
        and isinstance(inner.predicate, tirx.IntImm)
        and bool(inner.predicate.value)
    )
    if not whole:
        raise Unproven
    return variables, store.value


def _are(values: Sequence[Any], variables: Sequence[Any]) -> bool:
    return len(values) == len(variables) and all(
        value.same_as(variable) for value, variable in zip(values, variables, strict=True)
    )


def _sizes(parameters: Sequence[Any], arguments: Sequence[Any]) -> dict[Any, IndexFacts]:
    """The sizes inside of a function: each is the caller's."""
    pairs: list[tuple[Any, Any]] = []
    for parameter, given in zip(parameters, arguments, strict=True):
        tensor = isinstance(given, Operand)
        pairs += zip(parameter.shape, given.shape, strict=True) if tensor else [(parameter, given)]
    return {
        size: IndexFacts(Range(number(given), number(given)), uniform=True)
        for size, given in pairs
        if isinstance(size, tvm.ir.Var)
    }


def _move_forward(places: Sequence[IndexFacts]) -> bool:
    """Whether positions in a tensor ascend, because one coordinate does and the others stay."""
    moving = [place for place in places if not place.uniform]
    return len(moving) <= 1 and all(place.ascending for place in moving)


class _Element:
    """Evaluates the expression of an element.

    Parameters
    ----------
    known : mapping
        What is known of variables.
    operands : mapping
        The tensors that are read, by buffer.
    """

    def __init__(
        self, known: Mapping[Any, IndexFacts], operands: Mapping[Any, Operand], ranges: Ranges
    ) -> None:
        self._known = known
        self._operands = operands
        self._ranges = ranges
        self._depth = 0

    def of(self, value: Any) -> IndexFacts:
        """What is known of an expression, which its type must be able to hold."""
        dtype = str(value.ty)
        self._depth += 1
        try:
            found = self._of(value) if self._depth < _DEEPEST else None
        except Unproven:
            found = None
        self._depth -= 1
        if found is None or not self._ranges.fit(found.range, dtype):
            return IndexFacts(limits(dtype))
        return found

    def _of(self, value: Any) -> IndexFacts:
        if isinstance(value, tirx.IntImm):
            return IndexFacts(Range(int(value.value), int(value.value)), uniform=True)
        if isinstance(value, tvm.ir.Var) and value in self._known:
            return self._known[value]
        if type(value) in _OPERATORS:
            operator = ELEMENTWISE[_OPERATORS[type(value)]]
            return operator(self._ranges, self.of(value.a), self.of(value.b))
        if isinstance(value, tirx.Cast) and str(value.ty) != "bool":
            return self.of(value.value)
        if isinstance(value, tirx.Select):
            return self._either(value.true_value, value.false_value)
        if isinstance(value, tvm.ir.TensorLoad) and value.source in self._operands:
            return self._loaded(self._operands[value.source], value.indices)
        if isinstance(value, tvm.ir.Call):
            return self._called(value)
        raise Unproven

    def _called(self, call: Any) -> IndexFacts:
        name = function_name(call)
        if name == BRANCH:
            return self._either(*call.args[1:3])
        if name in ("bitwise_not", "bitwise_and"):
            return ELEMENTWISE[name](self._ranges, *map(self.of, call.args))
        raise Unproven

    def _either(self, left: Any, right: Any) -> IndexFacts:
        return ELEMENTWISE["either"](self._ranges, self.of(left), self.of(right))

    def _loaded(self, operand: Operand, indices: Sequence[Any]) -> IndexFacts:
        """What is known of an element that is read, by distinct coordinates of distinct axes."""
        facts = operand.facts
        if facts is None:
            raise Unproven
        places = [self.of(index) for index in indices]
        for place, size in zip(places, operand.shape, strict=True):
            last = self._ranges.add(Range(0, number(size)), Range(-1, -1)).high
            if not self._ranges.inside(place.range, Range(0, last)):
                raise Unproven
        used = [each for index in indices for each in self._axes(index)]
        apart = len(used) == len(set(used))
        distinct = [place.distinct for axis, place in enumerate(places) if axis in facts.distinct]
        return facts.but(
            distinct=frozenset().union(*distinct) if apart else frozenset(),
            ascending=facts.uniform or (facts.ascending and _move_forward(places)),
            uniform=facts.uniform or all(place.uniform for place in places),
        )

    def _axes(self, index: Any) -> set[int]:
        """The axes of the result that an expression depends on."""
        found: set[int] = set()

        def visit(variable: Any) -> None:
            if variable in self._known:
                found.update(self._known[variable].distinct)

        tvm_ffi.structural_walk(index, (tvm.ir.Var, visit))
        return found
