"""What is computed element by element from what lies at the same places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from tvm_scatter.lowering.inlined import ELEMENTWISE, MOVES, operands_of, scalar_of
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.read_ops import index_tensors


def is_computed_anew(tensor: Any, values: Mapping[Any, Any]) -> bool:
    """Whether a tensor is computed by arithmetic alone, and nothing for it is read by index.

    Parameters
    ----------
    values : mapping
        The expression that each variable is bound to.
    """
    return operator_of(_chosen(tensor, values)) in ELEMENTWISE and _is_plain(tensor, values, set())


def _is_plain(tensor: Any, values: Mapping[Any, Any], seen: set[Any]) -> bool:
    if tensor in seen:
        return True
    seen.add(tensor)
    value = values.get(tensor)
    if not isinstance(value, relax.Call):
        return True
    if is_read(value):
        numbers = all(scalar_of(each) is not None for each in index_tensors(value))
        return numbers and _is_plain(value.args[0], values, seen)
    if operator_of(value) not in ELEMENTWISE | MOVES:
        return True
    return all(_is_plain(each, values, seen) for each in operands_of(value))


def _chosen(tensor: Any, values: Mapping[Any, Any]) -> Any:
    """What computes a tensor, behind what only gives it another shape or chooses a column."""
    value = values.get(tensor)
    while isinstance(value, relax.Call) and (is_read(value) or operator_of(value) in MOVES):
        value = values.get(value.args[0])
    return value
