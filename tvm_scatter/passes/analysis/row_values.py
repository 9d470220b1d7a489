"""Tells which values are the same for a whole row of updates, and better computed once for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.inlined import PRODUCERS, operands_of
from tvm_scatter.lowering.lower import lower
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import plain_shape, same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

from .bindings import Binding
from .known_values import numbers

#: Elements of a row for each element of a value.
_LEAST_WIDTH = 16

#: Elements that a transpose must move far apart to be worth memory of its own.
_LEAST_TURNED = 8


def is_better_kept(binding: Binding, bound: Mapping[Any, Binding], scatter: Binding) -> bool:
    """Whether a value of a row of updates is better computed once, in memory.

    On a GPU all threads of a row would look up its index, and only then what the index names,
    while the row itself waits. Such as the norms of edges, of the degrees of both ends: a scatter
    of rows of 128 elements took 261 us with them, and 185 with its order where they were in memory
    (H200, a million edges). In memory they are read ahead, with the row's number.

    Where many lines share an index, such as the channels of an image, a value of an entry is the
    same in all of them, and would be computed for each of some lines. If it is made of several
    tensors, all of these would be read again each time, and in the order of the destinations.

    Parameters
    ----------
    bound : mapping
        The bindings of the function, by variable.
    """
    if backend_of(target_of(binding.var)).fuses_vectors_only:
        return False
    updates = ScatterCall.from_call(scatter.value).stored_updates
    if len(updates) != 1:
        # A softmax looks at the logits of a row before the row.
        return False
    if _is_narrow(binding.var, updates[0]) and _reads(binding, bound):
        return True
    return _is_of_lines(binding.var, updates[0], scatter) and _tensors(binding, bound) > 1


def turns_rows(binding: Binding, scatter: Binding) -> bool:
    """Whether a value is a transpose whose last axis is the row of the updates.

    Where a scatter computed it, the elements of each row would be read from places far apart.
    """
    if operator_of(binding.value) != "relax.permute_dims":
        return False
    before = plain_shape(binding.value.args[0])
    if not before or len(before) < 2:
        return False
    axes = binding.value.attrs.axes
    last = 0 if axes is None else int(axes[-1]) % len(before)
    moves = last != len(before) - 1 and _are_many(before[last]) and _are_many(before[-1])
    updates = ScatterCall.from_call(scatter.value).stored_updates
    rows = [plain_shape(each) for each in updates]
    return moves and all(shape and same_size(shape[-1], before[last]) for shape in rows)


def _are_many(size: Any) -> bool:
    """Whether so many elements may be far apart."""
    return not isinstance(size, int) or size >= _LEAST_TURNED


def _is_narrow(value: Any, updates: Any) -> bool:
    own, whole = static_shape(value), static_shape(updates)
    if not own or not whole or not tvm_ffi.structural_equal(own[0], whole[0]):
        return False
    sizes = numbers(own[1:]), numbers(whole[1:])
    if None in sizes:
        return False
    return _product(sizes[1]) >= _LEAST_WIDTH * _product(sizes[0])


def _is_of_lines(value: Any, updates: Any, scatter: Binding) -> bool:
    """Whether a value has an element for each entry of an index that many lines share."""
    own, whole = numbers(static_shape(value)), numbers(static_shape(updates))
    if not own or not whole or _product(whole) < _LEAST_WIDTH * _product(own):
        return False
    call = ScatterCall.from_call(scatter.value)
    try:
        problem = lower(call, current_options(), target_of(call.data).kind.name).problem
    except ScatterError:
        return False
    # What has fewer elements is a part of that.
    return problem.shares_index and _product(own) == problem.count.constant


def _reads(binding: Binding, bound: Mapping[Any, Binding]) -> bool:
    """Whether a value is computed from what is read by index."""
    return any(
        each in bound and is_read(bound[each].value) and not _is_selection(bound[each].value)
        for each in _computed_from(binding, bound)
    )


def _tensors(binding: Binding, bound: Mapping[Any, Binding]) -> int:
    """The number of tensors, of more than an element, that a value is computed from."""
    return sum(
        each not in bound or operator_of(bound[each].value) not in PRODUCERS
        for each in _computed_from(binding, bound)
        if isinstance(each, relax.Var) and static_shape(each) != []
    )


def _computed_from(binding: Binding, bound: Mapping[Any, Binding]) -> set[Any]:
    """All that a value is computed from by operators that a scatter computes, and the value."""
    seen: set[Any] = {binding.var}
    left = [binding]
    while left:
        each = left.pop()
        if operator_of(each.value) not in PRODUCERS and not _is_selection(each.value):
            continue
        for operand in set(operands_of(each.value)) - seen:
            seen.add(operand)
            if operand in bound:
                left.append(bound[operand])
    return seen


def _is_selection(value: Any) -> bool:
    """Whether a read is by one index for all, such as a row of the edges: no thread looks it up."""
    return is_read(value) and all(static_shape(each) == [] for each in index_tensors(value))


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes:
        result *= int(size)
    return result
