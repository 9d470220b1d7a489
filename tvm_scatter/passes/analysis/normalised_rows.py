"""Reductions of rows whose results the same rows are then divided by, or shifted, or scaled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm_scatter.lowering.inlined import PRODUCERS
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.names import NAMES, STOCK_OPERATORS

from .bindings import Binding, Bindings

_SCATTERS = frozenset((*NAMES, *STOCK_OPERATORS))


def is_of_normalised_rows(
    bindings: Bindings, reduction: Binding, producers: Iterable[Binding]
) -> bool:
    """Whether elements are computed both from the result of a reduction and from its rows.

    Not if a scatter reads them: it computes them itself, and the reduction its rows.

    Parameters
    ----------
    bindings : Bindings
        Of the function.
    reduction : Binding
        The reduction.
    producers : iterable of Binding
        What computes the rows that it reduces.
    """
    from_rows = {each.var for each in producers}
    from_result = {reduction.var}
    from_both: set[Any] = set()
    for binding in bindings.all[reduction.at + 1 :]:
        operator = operator_of(binding.value)
        if operator in _SCATTERS and binding.reads & from_both:
            return False
        if operator not in PRODUCERS or binding.fused != reduction.fused:
            continue
        is_result, is_row = (bool(binding.reads & each) for each in (from_result, from_rows))
        if binding.reads & from_both or (is_result and is_row):
            from_both.add(binding.var)
        elif is_result:
            from_result.add(binding.var)
        elif is_row:
            from_rows.add(binding.var)
    return bool(from_both)
