"""Checks that inputs have sizes that a model was exported for.

PyTorch follows one path through a program, and notes for which sizes it is the right one. Beyond
them the result would be that of another program, and TVM's memory plan has too little room.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import gt, lt
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from tvm_scatter.selection.strategy import strategy_for

from .analysis.greatest_sizes import greatest_sizes, least_sizes
from .analysis.shape_heap import ShapeHeap
from .heap_checks import Rule, heap_check, with_bindings

#: PyTorch's bound of every size that varies, whether its program needs it or not.
_USUAL_LEAST = 2


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
            if isinstance(function, relax.Function)
            and (greatest_sizes(function) or least_sizes(function))
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


def _rules(name: str, function: relax.Function, heap: ShapeHeap) -> Iterator[Rule]:
    most, least = greatest_sizes(function), least_sizes(function)
    for place, size in heap.parameters.items():
        tensor, dimension = heap.inputs[place]
        begin = f"{name}: dimension {dimension} of {tensor} must be "
        if size in most:
            yield place, partial(lt, most[size]), f"{begin}at most {most[size]}, but is "
        if least.get(size, 0) > _USUAL_LEAST:
            yield place, partial(gt, least[size]), f"{begin}at least {least[size]}, but is "
