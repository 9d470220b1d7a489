"""Checks of sizes that are read from tensors, or handed over as numbers: they may be any number.

TVM multiplies a size of 2^62 with that of an element, allocates the few bytes that are left, and
the function writes behind them. So each size of a tensor is checked before any tensor is allocated,
but only then: what a program asserts of the size gives a better error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, tirx

from .analysis.shape_heap import ShapeHeap
from .heap_checks import Rule, heap_check, rule_of_size, with_bindings

#: No memory has more elements, and their bytes do not overflow.
MOST = 2**48


def CheckReadSizes() -> tvm.transform.Pass:
    """The pass, for modules whose sizes TVM has lowered to functions on the host."""

    def check(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        found = [
            (name, function, heap)
            for name, function in mod.functions.items()
            if isinstance(function, relax.Function)
            for heap in [ShapeHeap(function)]
            if any(heap.first_uses.values())
        ]
        if not found:
            return mod
        builder = relax.BlockBuilder(mod)
        for name, function, heap in found:
            calls = {
                use: heap_check(builder, heap, _rules(name.name_hint, sizes))
                for use, sizes in heap.first_uses.items()
                if sizes
            }
            builder.update_func(name, with_bindings(function, before=calls))
        return builder.get()

    return tvm.transform.module_pass(check, opt_level=0, name="CheckReadSizes")


def _rules(name: str, sizes: dict[int, str]) -> Iterator[Rule]:
    for place, size in sizes.items():
        said = f"{name}: the size {size} of a tensor must be from 0 to 2^48, but is "
        yield rule_of_size(place, _is_no_size, said)


def _is_no_size(value: Any) -> Any:
    return tirx.any(value < 0, value > MOST)
