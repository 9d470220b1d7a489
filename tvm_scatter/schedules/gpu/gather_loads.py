"""Takes the loads out of expressions, so that all of them can be on their way at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import BRANCH, function_name
from tvm_scatter.emit.expressions import all_of, is_false


@dataclass(frozen=True)
class Loaded:
    """A load of an expression, and the variable that stands for its value there.

    Attributes
    ----------
    load : TensorLoad
        The load, in whose indices other values are variables, too.
    value : Var
        The variable.
    guards : tuple of expression
        The conditions of the branches that the load stands in, of variables as well: it may be
        evaluated only if all of them hold.
    is_choice : bool
        Whether the variable stands for one of several loads, whose guards never hold together.
    """

    load: Any
    value: Any
    guards: tuple[Any, ...]
    is_choice: bool = False

    @property
    def condition(self) -> Any:
        """When the load may be evaluated, or ``None`` for always."""
        return tirx.all(*self.guards) if self.guards else None


def without_loads(*expressions: Any) -> tuple[list[Any], list[Loaded]]:
    """The expressions of variables, and the loads that they stand for, in an order to load them."""
    writer = _Writer()
    return [writer.written(each, ()) for each in expressions], writer.found


def copied(expression: Any, loads: Sequence[Loaded]) -> tuple[Loaded, Any] | None:
    """The load whose value an expression is, and the number that it is where the load is not.

    ``None`` for an expression that computes anything else.
    """
    for loaded in loads:
        if loaded.value.same_as(expression):
            return loaded, None
        if isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
            condition, yes, no = expression.args
            plain = isinstance(no, tirx.IntImm | tirx.FloatImm) and loaded.guards
            if plain and loaded.value.same_as(yes) and _are_equal(condition, loaded.condition):
                return loaded, no
    return None


def independent_first(loads: Sequence[Loaded]) -> list[Loaded]:
    """The loads in the order of how many others each has to wait for, one after the other."""
    waits: dict[Any, int] = {}
    for loaded in loads:
        used = tirx.analysis.undefined_vars(tirx.all(*loaded.guards)) if loaded.guards else []
        for index in loaded.load.indices:
            used = [*used, *tirx.analysis.undefined_vars(index)]
        waits[loaded.value] = 1 + max((waits.get(each, 0) for each in used), default=0)
    return sorted(loads, key=lambda loaded: waits[loaded.value])


class _Writer:
    """Writes an expression anew."""

    def __init__(self) -> None:
        self.found: list[Loaded] = []
        self._branches: list[Any] = []
        self._choices: list[tuple[list[Any], Any]] = []

    def written(self, expression: Any, guards: tuple[Any, ...]) -> Any:
        """The expression, which stands in branches of these conditions."""

        def branch(call: Any) -> Any:
            if function_name(call) != BRANCH or any(map(call.same_as, self._branches)):
                return call
            choice = self._choice(call, guards)
            if choice is not None:
                return choice
            condition, yes, no = call.args
            condition = _holds(self.written(condition, guards))
            yes = self.written(yes, (*guards, condition))
            no = self.written(no, (*guards, _otherwise(condition)))
            self._branches.append(tirx.if_then_else(condition, yes, no))
            return self._branches[-1]

        def load(each: Any) -> Any:
            indices = [self.written(index, guards) for index in each.indices]
            return self._value(tirx.BufferLoad(each.source, indices), guards)

        callbacks = [(tvm.ir.Call, branch), (tvm.ir.TensorLoad, load)]
        return tvm_ffi.structural_map(expression, callbacks, order="pre")

    def _choice(self, call: Any, guards: tuple[Any, ...]) -> Any:
        """The variable of what is read where the place alone says which load that is.

        Each load fills the same registers then, and nothing is left to choose.
        """
        sides = list(_sides(call, guards))
        loads = [load for load, _ in sides]
        if not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
            return None
        if len({str(load.source.dtype) for load in loads}) > 1:
            return None
        read = [[load, list(each)] for load, each in sides]
        for known, value in self._choices:
            if _are_equal(known, read):
                return value
        value = tirx.Var(f"value{len(self.found)}", str(loads[0].source.dtype))
        for load, each in sides:
            indices = [self.written(index, each) for index in load.indices]
            written = tirx.BufferLoad(load.source, indices)
            self.found.append(Loaded(written, value, each, is_choice=True))
        self._choices.append((read, value))
        return value

    def _value(self, load: Any, guards: tuple[Any, ...]) -> Any:
        """The variable of a load that is evaluated wherever this one is; a new one at last."""
        for each in self.found:
            outer = guards[: len(each.guards)]
            if _are_equal(each.load, load) and _are_equal(list(each.guards), list(outer)):
                return each.value
        value = tirx.Var(f"value{len(self.found)}", str(load.source.dtype))
        self.found.append(Loaded(load, value, guards))
        return value


def _sides(expression: Any, guards: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """What an expression may be, and the conditions, of places alone, of each."""
    if isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
        condition, yes, no = expression.args
        if not all_of(condition, tvm.ir.TensorLoad):
            yield from _sides(yes, (*guards, condition))
            yield from _sides(no, (*guards, _otherwise(condition)))
            return
    yield expression, guards


def _holds(condition: Any) -> Any:
    """That a condition holds. TVM compares with negative numbers, which some types do not have."""
    return tirx.Not(is_false(condition)) if _compares(condition, "uint") else condition


def _otherwise(condition: Any) -> Any:
    """That a condition does not hold. It is only kept from TVM's eyes where that matters."""
    hidden = _compares(condition, "float", "bfloat", "uint")
    return is_false(condition) if hidden else tirx.Not(condition)


def _compares(condition: Any, *types: str) -> bool:
    """Whether a condition compares numbers of types whose names begin like this."""
    return any(
        str(number.ty.dtype).startswith(types)
        for kind in (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
        for comparison in all_of(condition, kind)
        for number in (comparison.a, comparison.b)
    )


def _are_equal(some: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(some, other))
