"""Asks for rows that are read soon.

In the order of destinations rows are read from anywhere. A processor has as many of them under way
as the queue of its loads holds, and a row of 512 bytes is 16 loads. What it is only asked for does
not stay in that queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import varies
from tvm_scatter.problem.reductions import item_bytes

#: So many rows in front of the one that is read. 8 and 32 do nearly as well, 2 are too few.
ROWS_AHEAD = 16
_LINE_BYTES = 64
#: The arguments of LLVM's ``prefetch``: to read, into all caches, data.
_TO_READ, _KEEP, _DATA = 0, 3, 1


def ask_for(element: Callable[[Any], Any], columns: Any) -> None:
    """Emit requests for what some columns of a row are computed from.

    Parameters
    ----------
    element : callable
        The element in a column, an expression.
    columns : int or expression
        How many columns there are. If that is not known, or they are less than a line of the cache,
        nothing is asked for.
    """
    if not isinstance(columns, int):
        return
    column = tirx.Var("column", "int64")
    for load in _rows(element(column), column):
        in_a_line = _LINE_BYTES // item_bytes(str(load.source.dtype))
        if columns < in_a_line:
            continue
        for first in range(0, columns, in_a_line):
            at = substitute(load, {column: tirx.IntImm("int64", first)})
            address = tirx.call_intrin("handle", "tirx.address_of", at)
            T.evaluate(tirx.call_intrin("void", "tirx.prefetch", address, _TO_READ, _KEEP, _DATA))


def _rows(value: Any, column: Any) -> list[Any]:
    """The loads that read columns side by side, each once."""
    found: list[Any] = []
    known = list(tirx.analysis.undefined_vars(value))
    for load in loads_of(value):
        is_known = all(any(map(each.same_as, known)) for each in tirx.analysis.undefined_vars(load))
        is_new = not any(tvm_ffi.structural_equal(load, each) for each in found)
        if is_known and is_new and _is_along(load, column):
            found.append(load)
    return found


def _is_along(load: Any, column: Any) -> bool:
    """Whether the next column is the next element."""
    *others, last = load.indices
    if any(varies(each, column) for each in others) or not varies(last, column):
        return False
    step = substitute(last, {column: column + 1}) - last
    return bool(Analyzer().can_prove_equal(step, 1))
