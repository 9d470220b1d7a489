"""What functions that TVM has legalized compute, if it is one expression for each element."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of, substitute
from tvm_scatter.emit.expressions import all_of, is_by_index
from tvm_scatter.ops.shapes import is_one

from .inlined import scalar_of
from .row_reductions import reducing_blocks


@dataclass(frozen=True)
class Elements:
    """A tensor, and what its elements are computed from.

    Attributes
    ----------
    axes : list of Var
        The coordinates of an element.
    value : expression
        The element, of the function's parameters and its caller's sizes.
    operands : dict
        What is passed for each parameter.
    sizes : list of expression
        The tensor's sizes.
    """

    axes: list[Any]
    value: Any
    operands: dict[Any, Any]
    sizes: list[Any]

    @property
    def read(self) -> list[Any]:
        """The tensors that are read. Numbers are part of the expression."""
        return [each for each in self.operands.values() if scalar_of(each) is None]


@dataclass(frozen=True)
class Part:
    """A tensor, and where it begins in the one that it is a part of."""

    tensor: Any
    begins: tuple[Any, ...]


def wide_sizes(sizes: Sequence[Any]) -> list[Any]:
    """The sizes that are not 1: a loop has an axis for each."""
    return [size for size in sizes if not is_one(size)]


def elements_of(call: relax.Call, function: tirx.PrimFunc) -> Elements | None:
    """What the elements of a call's result are; ``None`` if they are not one expression each.

    Parameters
    ----------
    call : relax.Call
        A ``call_tir`` of one result.
    function : tvm.tirx.PrimFunc
        What it calls.
    """
    operands = call.args[1].fields
    if reducing_blocks(function) or len(operands) + 1 != len(function.params):
        return None
    if not all(map(_has_sizes, (call, *operands))):
        return None
    *parameters, result = function.params
    found = _inlined(function, result)
    if found is None:
        return None
    axes, value = found
    given = dict(zip(parameters, operands, strict=True))
    value = _with_numbers(value, given)
    value = substitute(value, _sizes([*given.items(), (result, call)]))
    sizes = list(call.ty.shape.values)
    if any(map(is_by_index, loads_of(value))):
        return None
    return Elements(axes, _simple(value, axes, sizes), given, sizes)


def _has_sizes(tensor: Any) -> bool:
    return isinstance(getattr(tensor.ty, "shape", None), relax.ShapeExpr)


def parts_of(elements: Elements) -> list[Part] | None:
    """The tensors that one is a concatenation of; ``None`` if it is none."""
    value, sides = elements.value, []
    while isinstance(value, tvm.ir.Call) and function_name(value) == BRANCH:
        condition, last, value = value.args
        sides.append((condition, last))
    sides.append((None, value))
    loads = [load for _, load in sides]
    if len(loads) < 2 or not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
        return None
    analyzer, found = Analyzer(), []
    for condition, load in sides:
        begins = [
            analyzer.simplify(axis - at)
            for axis, at in zip(elements.axes, load.indices, strict=False)
        ]
        if len(begins) != len(load.indices) or len(begins) != len(elements.axes):
            return None
        if any(not varying.isdisjoint(elements.axes) for varying in map(_variables, begins)):
            return None
        if condition is not None and not _begins(condition, elements.axes, begins, analyzer):
            return None
        found.append(Part(elements.operands[load.source], tuple(begins)))
    parts = found[::-1]
    return parts if _are_side_by_side(parts, analyzer) else None


def _begins(condition: Any, axes: Sequence[Any], begins: Sequence[Any], analyzer: Any) -> bool:
    """Whether a condition says that an element is of a part, or of one behind it."""
    if not isinstance(condition, tirx.LE):
        return False
    beyond = condition.b - condition.a
    moved = [
        (axis, start)
        for axis, start in zip(axes, begins, strict=True)
        if not analyzer.can_prove_equal(start, 0)
    ]
    return len(moved) == 1 and bool(analyzer.can_prove_equal(beyond, moved[0][0] - moved[0][1]))


def _are_side_by_side(parts: Sequence[Part], analyzer: Any) -> bool:
    """Whether each part begins where the one before it ends, along one axis."""
    starts = [analyzer.simplify(each) for each in parts[0].begins]
    for part, following in pairwise(parts):
        moved = [
            at
            for at, pair in enumerate(zip(part.begins, following.begins, strict=True))
            if not analyzer.can_prove_equal(*pair)
        ]
        if len(moved) != 1:
            return False
        [at] = moved
        ends = part.begins[at] + part.tensor.ty.shape.values[at]
        if not analyzer.can_prove_equal(ends, following.begins[at]):
            return False
    return all(analyzer.can_prove_equal(start, 0) for start in starts)


def _variables(expression: Any) -> set[Any]:
    return set(tirx.analysis.undefined_vars(expression))


def _inlined(function: tirx.PrimFunc, result: Any) -> tuple[list[Any], Any] | None:
    """The coordinates and the value of an element of the tensor that a function computes.

    ``None`` if it computes any of its tensors otherwise than one by one.
    """
    known: dict[Any, tuple[list[Any], Any]] = {}

    def inner(load: Any) -> Any:
        if load.source not in known:
            return load
        axes, value = known[load.source]
        return substitute(value, dict(zip(axes, load.indices, strict=True)))

    for block in all_of(function.body, s_tir.SBlock):
        if not block.iter_vars and not isinstance(block.body, tirx.BufferStore):
            continue
        store, axes = block.body, [axis.var for axis in block.iter_vars]
        if not isinstance(store, tirx.BufferStore) or len(store.indices) != len(axes):
            return None
        if not all(at.same_as(axis) for at, axis in zip(store.indices, axes, strict=True)):
            return None
        value = tvm_ffi.structural_map(store.value, (tvm.ir.TensorLoad, inner))
        known[store.buffer] = (axes, value)
    return known.get(result)


def _with_numbers(value: Any, operands: dict[Any, Any]) -> Any:
    """The expression with the numbers of operands that are constants without axes."""
    numbers = {parameter: scalar_of(each) for parameter, each in operands.items()}

    def number(load: Any) -> Any:
        found = numbers.get(load.source)
        return load if found is None else found

    return tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, number))


def _sizes(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The caller's sizes, by a function's own variables for them."""
    found: dict[Any, Any] = {}
    for parameter, given in pairs:
        for own, size in zip(parameter.ty.shape, given.ty.shape.values, strict=True):
            if isinstance(own, tirx.Var):
                found.setdefault(own, size)
    return found


def _simple(value: Any, axes: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The expression, whose loads are at what their indices come to."""
    analyzer = Analyzer()
    for axis, size in zip(axes, sizes, strict=True):
        analyzer.bind(axis, tvm.ir.Range(0, size))

    def simple(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [analyzer.simplify(at) for at in load.indices])

    return tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, simple))
