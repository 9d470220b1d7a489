"""Checks that inputs have sizes that a model was exported for.

PyTorch follows one path through a program, and notes for which sizes it is the right one. Beyond
them the result would be that of another program, and TVM's memory plan has too little room.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import zip_longest
from operator import gt, lt
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.target import Target

from tvm_scatter.problem.size_conditions import (
    CONDITIONS,
    USUAL_LEAST,
    names_of,
    parsed,
    value_of,
)
from tvm_scatter.selection.strategy import strategy_for

from .analysis.greatest_sizes import greatest_sizes, least_sizes
from .analysis.shape_heap import ShapeHeap
from .heap_checks import Rule, heap_check, rule_of_size, with_bindings


def CheckExportedSizes() -> tvm.transform.Pass:
    """The pass, for modules whose sizes TVM has lowered to functions on the host."""

    def check(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        target = Target.current(allow_none=True)
        if target is not None and strategy_for(target.kind.name) is None:
            # Code for such a target may be unable to raise an error.
            return mod
        found = {
            name: (function, heap, rules)
            for name, function in mod.functions.items()
            if isinstance(function, relax.Function) and _may_have_rules(function)
            for heap in [ShapeHeap(function)]
            for rules in [list(_rules(name.name_hint, function, heap))]
            if rules
        }
        if not found:
            return mod
        builder = relax.BlockBuilder(mod)
        for name, (function, heap, rules) in found.items():
            call = heap_check(builder, heap, rules)
            builder.update_func(name, with_bindings(function, after={heap.last_parameter: call}))
        return builder.get()

    return tvm.transform.module_pass(check, opt_level=0, name="CheckExportedSizes")


def _may_have_rules(function: relax.Function) -> bool:
    return bool(
        greatest_sizes(function) or least_sizes(function) or CONDITIONS in (function.attrs or {})
    )


def _rules(name: str, function: relax.Function, heap: ShapeHeap) -> Iterator[Rule]:
    most, least = greatest_sizes(function), least_sizes(function)
    for place, size in heap.parameters.items():
        begin = f"{name}: {_named(heap, place)} must be "
        if size in most:
            said = f"{begin}at most {most[size]}, but is "
            yield rule_of_size(place, partial(lt, most[size]), said)
        if least.get(size, 0) > USUAL_LEAST:
            said = f"{begin}at least {least[size]}, but is "
            yield rule_of_size(place, partial(gt, least[size]), said)
    places = {size: place for place, size in heap.parameters.items()}
    for text in (function.attrs or {}).get(CONDITIONS, ()):
        condition = parsed(str(text))
        if set(names_of(condition)) <= places.keys():
            yield _of_condition(name, condition, places, heap)


def _named(heap: ShapeHeap, place: int) -> str:
    if place in heap.arguments:
        return heap.arguments[place]
    tensor, dimension = heap.inputs[place]
    return f"dimension {dimension} of {tensor}"


def _written(heap: ShapeHeap, place: int) -> str:
    if place in heap.arguments:
        return heap.arguments[place]
    return "{}.shape[{}]".format(*heap.inputs[place])


def _of_condition(
    name: str, condition: ast.expr, places: Mapping[str, int], heap: ShapeHeap
) -> Rule:
    """The rule that a condition holds."""
    used = {size: places[size] for size in names_of(condition)}

    def is_wrong(held: Any) -> Any:
        return tirx.Not(value_of(condition, {size: held[place] for size, place in used.items()}))

    def said(held: Any) -> list[Any]:
        shown = {size: _written(heap, place) for size, place in used.items()}
        text = re.sub(r"\w+", lambda word: shown.get(word[0], word[0]), ast.unparse(condition))
        parts: list[Any] = [f"{name}: the model was exported for sizes with {text}"]
        for begin, size in zip_longest([", but "], used, fillvalue=" and "):
            parts += [f"{begin}{shown[size]} is ", held[used[size]]]
        return [*parts, "."]

    return Rule(is_wrong, said)
