"""What an expression of elements of tensors is made of, and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from .computed_updates import BRANCH, function_name, loads_of, parts_of, substitute


def all_of(expression: Any, kind: Any) -> list[Any]:
    """The nodes of some kind in an expression."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (kind, found.append))
    return found


def choices(value: Any, known: Mapping[Any, int] | None = None) -> int:
    """How many choices are made one by the other.

    Parameters
    ----------
    value : expression
        What the last of them chooses, or is computed from it.
    known : mapping, optional
        As many for elements of buffers. Of other elements, how they came about does not count.
    """
    if isinstance(value, tvm.ir.TensorLoad):
        return (known or {}).get(value.source, 0)
    name = function_name(value) if isinstance(value, tvm.ir.Call) else None
    if name == "tensor_load":
        return 0
    if isinstance(value, tirx.Select):
        condition, sides = value.condition, [value.true_value, value.false_value]
    elif name == BRANCH:
        condition, *sides = value.args
    else:
        return max((choices(part, known) for part in parts_of(value)), default=0)
    return max(choices(condition, known) + 1, *(choices(side, known) for side in sides))


def varies(expression: Any, axis: Any) -> bool:
    """Whether an expression depends on an axis."""
    return any(each.same_as(axis) for each in tirx.analysis.undefined_vars(expression))


def moves(load: Any, axis: Any) -> bool:
    """Whether a load reads another element at another place along an axis."""
    return any(varies(index, axis) for index in load.indices)


def counts_by_one(index: Any, axis: Any) -> bool:
    """Whether an index begins somewhere and then counts like an axis.

    A head of attention begins within the row of all heads.
    """
    step = substitute(index, {axis: axis + 1}) - index
    return bool(Analyzer().can_prove_equal(step, 1))


def are_neighbours(load: Any, axis: Any) -> bool:
    """Whether a load along an axis reads neighbours, or the same element again and again."""
    if not moves(load, axis):
        return True
    *others, inner = load.indices
    return not any(varies(index, axis) for index in others) and counts_by_one(inner, axis)


def is_by_index(load: Any) -> bool:
    """Whether what a load reads depends on what another one reads."""
    return any(True for index in load.indices for _ in loads_of(index))


def is_false(condition: Any) -> Any:
    """That a condition does not hold, in a form that TVM does not simplify.

    It would take the negation of "less" for "greater or equal". Neither holds for a NaN.
    """
    return tirx.Cast("int32", condition) == 0
