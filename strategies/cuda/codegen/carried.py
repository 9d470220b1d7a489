"""What of an update is the same for all elements of its row, so that lists can carry it.

A list names updates in the order of their destinations, and what an update reads first, its source
and its weight, then lies anywhere: 32 bytes are moved for each 4. Whoever makes the list has
updates at hand that are neighbours. So it reads and computes this once, and who sums rows finds it
side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import (
    BRANCH,
    function_name,
    loads_of,
    parts_of,
    substitute,
)
from tvm_scatter.emit.owned_updates import OwnedUpdates, is_inside
from tvm_scatter.problem.reductions import item_bytes

from .expression import Value, Writer, can_be_moved, in_32_bits, is_half

#: The most bytes that an entry of a list has. Each byte is written twice and read twice, so that 16
#: take longer than they save. Workspaces have room for as many, whatever is carried.
MOST_BYTES = 8
#: Stands for the begin of a row that is not read, because its condition does not hold.
_NO_ROW = tirx.IntImm("uint32", np.iinfo(np.uint32).max)


@dataclass(frozen=True)
class _Part:
    """Something to carry.

    Attributes
    ----------
    expression : expression
        It depends on the coordinates of rows alone.
    condition : expression or None
        What must hold for the expression to count, and is carried with it.
    """

    expression: Any
    condition: Any = None

    @property
    def carried(self) -> Any:
        """The one number that is carried."""
        if self.condition is None:
            return self.expression
        return tirx.Select(self.condition, self.expression, _NO_ROW)

    def has_condition_of(self, other: _Part) -> bool:
        """Whether the expressions of both count under the same condition."""
        return other.condition is not None and _same(self.condition, other.condition)


@dataclass(frozen=True)
class Carried:
    """What a list carries of each update.

    Attributes
    ----------
    values : list of Value
        What is carried, widest first.
    lines : list of str
        Statements that compute these.
    bytes : int
        Of an entry: a power of two, so that one access moves it.
    """

    values: list[Value]
    lines: list[str]
    bytes: int
    _parts: list[_Part]

    def known(self, name: str) -> list[tuple[Any, Value]]:
        """The expressions whose values are known from what is carried.

        Parameters
        ----------
        name : str
            The C++ name of the values, without their numbers.
        """
        found = []
        for at, (part, value) in enumerate(zip(self._parts, self.values, strict=True)):
            own = replace(value, name=f"{name}{at}")
            found.append((part.expression, own))
            if part.condition is not None:
                holds = f"({own.name} != {int(_NO_ROW)}u)"
                found.append((part.condition, Value(holds, "bool", varies=False)))
        return found


class _CannotCarryError(Exception):
    """Something of a row must not be read in any case."""


def carried(owned: OwnedUpdates, writer: Writer) -> Carried | None:
    """What is carried, or ``None`` if nothing is read for a row, or too much.

    Parameters
    ----------
    writer : Writer
        Writes the statements that compute it.
    """
    try:
        parts = _Rows(owned).parts()
    except _CannotCarryError:
        return None
    if not any(True for part in parts for _ in loads_of(part.carried)):
        return None
    values = [(part, writer.value(part.carried)) for part in parts]
    if any(value.varies for _, value in values):
        # Rows of one element: vectors are along the rows.
        return None
    values.sort(key=lambda each: -_bytes(each[1]))
    needed = max(sum(_bytes(value) for _, value in values), 4)
    if needed > MOST_BYTES:
        return None
    size = 1 << (needed - 1).bit_length()
    return Carried([each for _, each in values], writer.lines, size, [each for each, _ in values])


def _bytes(value: Value) -> int:
    return item_bytes("float32" if is_half(value.dtype) and not value.stored else value.dtype)


class _Rows:
    """Finds the largest parts that depend on the coordinates of rows alone."""

    def __init__(self, owned: OwnedUpdates) -> None:
        updates = owned.updates
        self._updates = updates
        self._rows = {*updates.axes[: owned.rows]}
        self._columns = updates.axes[owned.rows :]
        self._others = {*self._columns, updates.destination, updates.sum}
        self._analyzer = updates.analyzer()

    def parts(self) -> list[_Part]:
        """The parts of all expressions, each once, and a condition with a part where possible."""
        every = [
            part
            for expression in self._updates.expressions
            for part in self._parts(expression, guarded=False)
        ]
        found: list[_Part] = []

        def add(part: _Part) -> None:
            known = [each for other in found for each in (other.expression, other.condition)]
            if not any(each is not None and _same(part.expression, each) for each in known):
                found.append(part)

        for part in every:
            alike = [other for other in every if _same(other.expression, part.expression)]
            if part.condition is not None and all(part.has_condition_of(each) for each in alike):
                add(part)
        for part in every:
            add(_Part(part.expression))
            if part.condition is not None:
                add(_Part(part.condition))
        return found

    def _parts(self, expression: Any, guarded: bool) -> Iterator[_Part]:
        of = {*tirx.analysis.undefined_vars(expression)}
        if not of & self._rows:
            return
        if not of & self._others:
            inside = (is_inside(load, self._analyzer) for load in loads_of(expression))
            if guarded and not all(inside):
                raise _CannotCarryError
            yield _Part(expression)
            return
        is_branch = isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH
        if is_branch:
            condition, yes, no = expression.args
            yield from self._of_branch(condition, yes, no, guarded)
            return
        # The writer computes offsets in short leaves in 32 bits.
        short = isinstance(expression, tvm.ir.TensorLoad) and self._updates.known.is_short(
            expression.source
        )
        for part in parts_of(expression):
            yield from self._parts(in_32_bits(part) if short else part, guarded)

    def _of_branch(self, condition: Any, yes: Any, no: Any, guarded: bool) -> Iterator[_Part]:
        yield from self._parts(condition, guarded)
        begin = self._begin_of_row(condition, yes, no)
        if begin is not None:
            yield _Part(begin, condition)
            return
        for side in (yes, no):
            yield from self._parts(side, guarded=True)

    def _begin_of_row(self, condition: Any, yes: Any, no: Any) -> Any:
        """Where a row begins that is read if a condition holds, if that is all that is to know.

        Where the condition holds, it is a position in a short leaf, and so below what says that it
        does not. Elsewhere nothing is read.
        """
        if {*tirx.analysis.undefined_vars(condition)} & self._others:
            return None
        if not can_be_moved(condition, yes, no, self._updates.known):
            return None
        if not self._updates.known.is_short(yes.source):
            return None
        position = in_32_bits(yes.indices[0])
        parts = [part.expression for part in self._parts(position, guarded=True)]
        if len(parts) != 1:
            return None
        zeros = {column: tirx.const(0, column.ty) for column in self._columns}
        at_first = substitute(position, zeros)
        return parts[0] if self._analyzer.can_prove_equal(at_first, parts[0]) else None


def _same(left: Any, right: Any) -> bool:
    return bool(tvm_ffi.structural_equal(left, right))
