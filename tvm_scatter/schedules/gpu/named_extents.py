"""Sizes that are computed of others, such as ``32 * n``, by one name while a product is scheduled.

TVM's analysis of regions takes a number of tiles such as ``(32 * n + 127) // 128`` apart, and finds
no longer that all tiles together are the tensor. So the schedule is made for any size, and this is
one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.ops.shapes import same_size

_FORMULAS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min)


def with_named_extents(
    function: tirx.PrimFunc,
) -> tuple[tirx.PrimFunc, Callable[[tirx.PrimFunc], tirx.PrimFunc]]:
    """The function with names of the computed sizes of its loops, and what puts these back."""
    loops = all_of(function.body, tirx.For)
    variables = {each.loop_var for each in loops}
    names: list[tuple[Any, Var]] = []
    for extent in (each.extent for each in loops):
        is_size = isinstance(extent, _FORMULAS) and variables.isdisjoint(undefined_vars(extent))
        if is_size and not any(same_size(extent, known) for known, _ in names):
            names.append((extent, tirx.Var("size", str(extent.ty))))
    if not names:
        return function, lambda scheduled: scheduled

    def named(expression: Any) -> Any:
        equal = (name for known, name in names if same_size(expression, known))
        return next(equal, expression)

    def restored(scheduled: tirx.PrimFunc) -> tirx.PrimFunc:
        return substitute(scheduled, {name: known for known, name in names})

    return tvm_ffi.structural_map(function, (_FORMULAS, named), order="pre"), restored
