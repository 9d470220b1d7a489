"""Lets a scatter fill the tensor that it scatters into.

Models scatter into zeros. An implementation that writes every row of the output writes the zeros of
rows without updates, too. So they need not be in memory before, nor be read. Where it is chosen at
run time whether such an implementation computes the scatter, the others fill the output first.

It runs before :func:`ReuseBuffers`, which lets the scatter write to the tensor that is allocated
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.plan import Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Bindings
from tvm_scatter.passes.analysis.created import is_created, made_by, uniform_number
from tvm_scatter.passes.analysis.definitions import Definitions

from .functions import Change, with_changes, with_values
from .new_memory import into_new_memory
from .report import note


def FillData() -> tvm.transform.Pass:
    """The pass."""

    def fill(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _filling(mod, name.name_hint, function))

    return tvm.transform.module_pass(fill, opt_level=0, name="FillData")


def _filling(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function whose scatters fill their data, or ``None`` if none can."""
    values = Definitions.of(function).values
    found: dict[Any, Change] = {}
    for binding in Bindings(function):
        if not binding.fused or not is_scatter(binding.value):
            continue
        call = ScatterCall.from_call(binding.value)
        fill = _fill(call, values)
        if fill:
            found[binding.var] = partial(into_new_memory, call.replace(fill=fill))
            note("fill", f"{name}.{binding.var.name}", f"fills its output with {fill} itself")
    return with_values(mod, function, found) if found else None


def _fill(call: ScatterCall, values: Mapping[Any, Any]) -> str:
    """The number that fills the data of a scatter; empty if it must be in memory."""
    if call.form == COPY_RANGES or call.in_place or call.data.ty.vdevice is not None:
        return ""
    target, strategy = strategy_of(call.data)
    if strategy is None or not strategy.backend.fills_under(current_options()):
        return ""
    number = _number(made_by(call.data, values))
    if not number:
        return ""
    try:
        filling = call.replace(fill=number).to_call()
        planned = plan(filling, target, current_options())
    except ScatterError:
        return ""
    if planned.way is not Way.SCATTER or planned.selection is None:
        return ""
    fills = any(branch.implementation.fills for branch in planned.selection.branches)
    return number if fills else ""


def _number(value: Any) -> str:
    """The number that every element of a created tensor is; empty if it is not known."""
    number = uniform_number(value) if is_created(value) else None
    return "" if number is None or isinstance(number, bool) else repr(number)
