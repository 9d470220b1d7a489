"""Which parts of an update are read before anything is computed with them.

A kernel has several rows in flight. Whatever is computed with a row waits for it, and what comes
behind in the program waits as well. So all rows are read first: vectors as they are stored, and
what is the same for a whole row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of, parts_of

from .expression import Value, Writer, can_be_moved, declared_in_struct

#: The most vectors and single values that are held: they take registers for each row in flight.
_MOST_VECTORS, _MOST_SINGLE = 2, 4


@dataclass(frozen=True)
class _Part:
    """A load of neighbours, and the condition under which it counts; or a value of a whole row."""

    expression: Any
    condition: Any = None

    def is_like(self, other: _Part) -> bool:
        """Whether both are the same."""
        if (self.condition is None) != (other.condition is None):
            return False
        same = tvm_ffi.structural_equal(self.expression, other.expression)
        conditions = self.condition, other.condition
        return same and (self.condition is None or tvm_ffi.structural_equal(*conditions))


@dataclass(frozen=True)
class ReadFirst:
    """What is read first.

    Attributes
    ----------
    lines : list of str
        Statements that read it.
    fields : list of str
        Declarations of the fields that hold it.
    values : list of str
        What the fields get.
    vectors : int
        How many of them are vectors.
    """

    lines: list[str]
    fields: list[str]
    values: list[str]
    vectors: int


class _CannotSplitError(Exception):
    """Something is read in a branch, or element by element."""


def read_first(
    expressions: Sequence[Any],
    column: Any,
    reader: Writer,
    writer: Writer,
    held: Sequence[Any] = (),
    unknown: frozenset[Any] = frozenset(),
) -> ReadFirst | None:
    """Let one writer read the parts of expressions, and another have them.

    Parameters
    ----------
    column : Var or None
        The coordinate along which elements are neighbours.
    reader : Writer
        Writes the statements that read.
    writer : Writer
        Finds what was read in fields of ``read``.
    held : sequence of expression
        What the writer has anyway, and nobody needs to read.
    unknown : frozenset of Var
        What nobody knows yet when it is read.

    Returns
    -------
    ReadFirst or None
        ``None`` if everything must be computed as it is read.
    """
    parts: list[_Part] = []
    try:
        for expression in expressions:
            for part in _parts(expression, column, reader, held):
                if unknown & set(tirx.analysis.undefined_vars(part.expression)):
                    return None
                if not any(part.is_like(other) for other in parts):
                    parts.append(part)
    except _CannotSplitError:
        return None
    values: list[Value] = []
    for part in parts:
        if part.condition is None:
            value = reader.value(part.expression)
        else:
            value = reader.guarded(part.condition, part.expression)
        later = replace(value, name=f"read.part{len(values)}")
        if part.condition is None:
            writer.preset(part.expression, later)
        else:
            writer.preset_guarded(part.condition, part.expression, later)
        values.append(value)
    vectors = sum(value.varies for value in values)
    if not 0 < vectors <= _MOST_VECTORS or len(values) - vectors > _MOST_SINGLE:
        return None
    fields = [f"{declared_in_struct(value)} part{at};" for at, value in enumerate(values)]
    return ReadFirst(reader.lines, fields, [value.name for value in values], vectors)


def _parts(expression: Any, column: Any, reader: Writer, held: Sequence[Any]) -> Iterator[_Part]:
    if _is_one_of(expression, held):
        return
    varies = column is not None and _varies(expression, column)
    if not varies and not _has(expression, held):
        if any(True for _ in loads_of(expression)):
            yield _Part(expression)
        return
    if isinstance(expression, tvm.ir.TensorLoad):
        if not varies or not reader.reads_neighbours(expression):
            raise _CannotSplitError
        yield _Part(expression)
        return
    inner = parts_of(expression)
    if isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
        condition, yes, no = inner
        if any(True for side in (yes, no) for _ in loads_of(side)):
            known = column is None or not _varies(condition, column)
            moved = can_be_moved(condition, yes, no, reader.leaves)
            if not known or _has(condition, held) or not moved:
                raise _CannotSplitError
            if varies and not reader.reads_neighbours(yes):
                raise _CannotSplitError
            yield _Part(condition)
            yield _Part(yes, condition)
            return
    for each in inner:
        yield from _parts(each, column, reader, held)


def _has(expression: Any, held: Sequence[Any]) -> bool:
    if not held:
        return False
    return _is_one_of(expression, held) or any(_has(part, held) for part in parts_of(expression))


def _is_one_of(expression: Any, held: Sequence[Any]) -> bool:
    return any(tvm_ffi.structural_equal(expression, part) for part in held)


def _varies(expression: Any, column: Any) -> bool:
    return any(column.same_as(var) for var in tirx.analysis.undefined_vars(expression))
