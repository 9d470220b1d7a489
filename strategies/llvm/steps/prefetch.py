"""Asks for rows that are read soon.

In the order of destinations rows are read from anywhere. A processor has as many of them under way
as the queue of its loads holds, and a row of 512 bytes is 16 loads. What it is only asked for does
not stay in that queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import are_neighbours, is_by_index, moves
from tvm_scatter.problem.reductions import item_bytes

#: So many rows in front of the one that is read. 8 and 32 do nearly as well, 2 are too few.
ROWS_AHEAD = 16
_LINE_BYTES = 64
#: The arguments of LLVM's ``prefetch``: to read, into all caches, data.
_TO_READ, _KEEP, _DATA = 0, 3, 1


def ask_for(element: Callable[[Any], Any], columns: Any, lines: int | None = None) -> None:
    """Emit requests for what some columns of a row are computed from.

    Parameters
    ----------
    element : callable
        The element in a column, an expression.
    columns : int or expression
        How many columns there are. If that is not known, or they are less than a line of the cache,
        nothing is asked for.
    lines : int, optional
        Ask for so many lines of each row, and leave the others to the processor, which reads on.
    """
    if not isinstance(columns, int):
        return
    column = tirx.Var("column", "int64")
    for load in _rows(element(column), column):
        in_a_line = _LINE_BYTES // item_bytes(str(load.source.dtype))
        if columns < in_a_line:
            continue
        for first in range(0, columns, in_a_line)[:lines]:
            _ask(substitute(load, {column: tirx.IntImm("int64", first)}))


def ask_for_entries(item: Any, values: Sequence[Any]) -> None:
    """Emit requests for what stands at an item itself, as its entry of an index.

    What is read by such an entry can be asked for only where the entry is there.

    Parameters
    ----------
    item : Var
        The number of the item.
    values : sequence of expression
        What is computed from its entries.
    """
    for load in _each_once(load for value in values for load in loads_of(value)):
        if moves(load, item) and not is_by_index(load):
            _ask(load)


def _ask(load: Any) -> None:
    address = tirx.call_intrin("handle", "tirx.address_of", load)
    T.evaluate(tirx.call_intrin("void", "tirx.prefetch", address, _TO_READ, _KEEP, _DATA))


def _rows(value: Any, column: Any) -> list[Any]:
    """The loads that read columns side by side, each once."""
    known = list(tirx.analysis.undefined_vars(value))
    return [
        load
        for load in _each_once(loads_of(value))
        if all(any(map(each.same_as, known)) for each in tirx.analysis.undefined_vars(load))
        and moves(load, column)
        and are_neighbours(load, column)
    ]


def _each_once(loads: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for load in loads:
        if not any(tvm_ffi.structural_equal(load, each) for each in found):
            found.append(load)
    return found
