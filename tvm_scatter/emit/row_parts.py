"""What computed updates read of their row alone, such as where it is and what it is weighted by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .computed_updates import BRANCH, ComputedUpdates, function_name, loads_of, parts_of

_ROUNDED = "bfloat16"


def row_parts(updates: ComputedUpdates, axes: int) -> list[Any]:
    """The expressions in an update that are the same along its row, and that read anything.

    Those that are evaluated in any case, and not those that depend on the destination. Larger ones
    come first.

    Parameters
    ----------
    axes : int
        How many of the last axes make up a row.
    """
    varying = {*updates.axes[-axes:], updates.destination}
    found: list[Any] = []
    for part in _parts(updates.value, varying):
        if not any(tvm_ffi.structural_equal(part, other) for other in found):
            found.append(part)
    return sorted(found, key=_size, reverse=True)


def are_all_of_rows(updates: ComputedUpdates, axes: int, parts: Sequence[Any]) -> bool:
    """Whether the elements of a row depend on its parts and their columns alone."""
    value, _ = with_named_parts(updates, parts)
    columns = {*updates.axes[-axes:]}
    return {*tirx.analysis.undefined_vars(value)}.isdisjoint({*updates.axes} - columns)


def with_named_parts(updates: ComputedUpdates, parts: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The element, with a variable in place of each part, and these variables."""
    names = [tirx.Var("part", str(part.ty.dtype)) for part in parts]
    return with_parts(updates.value, list(zip(parts, names, strict=True))), names


def _parts(expression: Any, varying: set[Any]) -> Iterator[Any]:
    if _is_part(expression, varying):
        yield expression
    elif isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
        yield from _parts(expression.args[0], varying)
    else:
        for part in parts_of(expression):
            yield from _parts(part, varying)


def _is_part(expression: Any, varying: set[Any]) -> bool:
    # TVM stores no condition. What is computed in bfloat16 is rounded where it is emitted.
    is_load, dtype = isinstance(expression, tvm.ir.TensorLoad), str(expression.ty.dtype)
    exact = dtype != "bool" and (is_load or dtype != _ROUNDED)
    reads = next(loads_of(expression), None) is not None
    return exact and reads and not varying & {*tirx.analysis.undefined_vars(expression)}


def _size(expression: Any) -> int:
    return 1 + sum(map(_size, parts_of(expression)))


def with_parts(expression: Any, values: Sequence[tuple[Any, Any]]) -> Any:
    """The expression with some of its parts replaced by others, in the order of the pairs."""
    for part, value in values:

        def known(each: Any, part: Any = part, value: Any = value) -> Any:
            return value if tvm_ffi.structural_equal(each, part) else each

        expression = tvm_ffi.structural_map(expression, (tvm.ir.Expr, known))
    return expression
