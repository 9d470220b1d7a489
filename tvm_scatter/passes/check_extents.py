"""Checks of sizes that the host computes at run time: none is negative, no divisor is zero.

A program holds for a range of sizes only: ``x[1:] - x[:-1]`` of no rows would have -1 rows. TVM
allocates such a tensor, or divides by zero, and the process ends. So it does where the number of
bytes overflows. That takes a size that was read from a tensor: others are those of tensors in
memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.error_text import raise_error
from tvm_scatter.emit.parameters import opaque_block

from .analysis.shape_heap import ShapeHeap
from .check_read_sizes import MOST

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_MOST_IN_MEMORY = 2**40
#: TVM also counts in bits, as 64-bit integers.
_MOST_BYTES = 2**56
#: More than any size, and so little that double precision tells what is near the ends of int64.
_OVERFLOWS = 2**62
_ROUNDED = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Min: tirx.min,
    tirx.Max: tirx.max,
}


class _Rule(NamedTuple):
    """What must be true of a size, and how an error says that it is not.

    Attributes
    ----------
    size, holds : expression
        The size, and the condition.
    text : tuple of str or expression
        The begin of the error.
    checked : expression, optional
        What the host computes in place of the condition.
    """

    size: Any
    holds: Any
    text: tuple[Any, ...]
    checked: Any = None


def CheckExtents() -> tvm.transform.Pass:
    """The pass, for modules whose sizes TVM has lowered to functions on the host."""

    def check(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        result = mod
        for name, function in mod.functions.items():
            if not isinstance(function, relax.Function):
                continue
            heap = ShapeHeap(function)
            for writer in heap.writers:
                checked = _checked(mod[writer], heap, name.name_hint)
                if checked is not mod[writer]:
                    result = result.clone() if result is mod else result
                    result.update_func(writer, checked)
        return result

    return tvm.transform.module_pass(check, opt_level=0, name="CheckExtents")


def _checked(function: tirx.PrimFunc, heap: ShapeHeap, name: str) -> tirx.PrimFunc:
    """A function that computes sizes, with checks in front of it."""
    stores = _stores(function)
    rules = list(_unproved(list(_rules(stores, heap)), heap))
    if not rules:
        return function
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True), opaque_block():
            for rule in rules:
                holds = rule.holds if rule.checked is None else rule.checked
                with T.If(tirx.Not(holds)), T.Then():
                    raise_error("ValueError", [f"{name}: ", *rule.text, *_because(rule, heap)])
            for store in stores:
                T.buffer_store(store.buffer, store.value, store.indices)
    return function.with_body(builder.get().body)


def _stores(function: tirx.PrimFunc) -> list[tirx.BufferStore]:
    body = function.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _rules(stores: list[tirx.BufferStore], heap: ShapeHeap) -> Iterator[_Rule]:
    """The rules for sizes, those of divisors first: what divides by zero gives no size."""
    for store in stores:
        for divisor in _divisors(store.value):
            yield _Rule(divisor, divisor != 0, ("a size is divided by zero",))
    # A check of a short formula often proves what a long one needs.
    for store in sorted(stores, key=lambda store: len(str(store.value))):
        if int(store.indices[0]) in heap.extents:
            yield from _rules_of_extent(store.value, _is_read(store, heap))
    for store in stores:
        if _is_read(store, heap) and int(store.indices[0]) in heap.bytes:
            yield _at_most(store.value, _MOST_BYTES)


def _is_read(store: tirx.BufferStore, heap: ShapeHeap) -> bool:
    """Whether what is stored is computed from what a tensor holds, which may be any number."""
    return any(int(load.indices[0]) in heap.read for load in loads_of(store.value))


def _rules_of_extent(size: Any, is_read: bool) -> Iterator[_Rule]:
    if is_read and type(size) in _ROUNDED:
        # In 64 bits it may overflow to any number, of either sign, which errors must not name.
        yield _at_most(size, _OVERFLOWS)
        fits = _rounded(size) >= tirx.FloatImm("float64", -_OVERFLOWS)
        text = ("a tensor would have a negative size",)
        yield _Rule(size, size >= -_OVERFLOWS, text, checked=fits)
    yield _Rule(size, size >= 0, ("a tensor would have the negative size ", size))


def _at_most(size: Any, most: int) -> _Rule:
    fits = _rounded(size) <= tirx.FloatImm("float64", most)
    return _Rule(size, size <= most, ("a tensor would be larger than any memory",), checked=fits)


def _rounded(size: Any) -> Any:
    """A size in double precision, where products of sizes do not overflow."""
    function = _ROUNDED.get(type(size))
    if function is None:
        return tirx.Cast("float64", size)
    return function(_rounded(size.a), _rounded(size.b))


def _divisors(size: Any) -> list[Any]:
    found: list[Any] = []
    for kind in _DIVISIONS:
        tvm_ffi.structural_walk(size, (kind, lambda division: found.append(division.b)))
    return [divisor for divisor in found if not isinstance(divisor, tirx.IntImm)]


def _unproved(rules: list[_Rule], heap: ShapeHeap) -> Iterator[_Rule]:
    """The rules that do not follow from the rules before them."""
    analyzer = Analyzer()
    values: dict[int, Any] = {}
    scopes = []
    for rule in rules:
        holds = _without_loads(rule.holds, heap, values, analyzer)
        if analyzer.can_prove(holds):
            continue
        yield rule
        scopes.append(analyzer.constraint_scope(holds))
        scopes[-1].__enter__()
    for scope in reversed(scopes):
        scope.__exit__(None, None, None)


def _without_loads(
    condition: Any, heap: ShapeHeap, values: dict[int, Any], analyzer: Analyzer
) -> Any:
    """A condition on variables in place of what the heap holds.

    No size of an input is negative. Sizes of tensors that are read are checked when they are.
    """

    def variable(load: Any) -> Any:
        place = int(load.indices[0])
        if place not in values:
            values[place] = tirx.Var(f"size{place}", "int64")
            if place in heap.inputs:
                analyzer.bind(values[place], tvm.ir.Range(0, _MOST_IN_MEMORY))
            elif place in heap.read and place in heap.extents:
                analyzer.bind(values[place], tvm.ir.Range(0, MOST + 1))
        return values[place]

    return tvm_ffi.structural_map(condition, (tvm.ir.TensorLoad, variable))


def _because(rule: _Rule, heap: ShapeHeap) -> Iterator[Any]:
    """The inputs that a size depends on, and sizes that were read, in words."""
    joint = ", because "
    for place, load in {int(load.indices[0]): load for load in loads_of(rule.size)}.items():
        if place in heap.inputs:
            tensor, dimension = heap.inputs[place]
            yield f"{joint}dimension {dimension} of {tensor} has size "
        elif place in heap.read:
            yield f"{joint}{heap.read[place]} is "
        else:
            continue
        yield load
        joint = " and "
    yield "."
