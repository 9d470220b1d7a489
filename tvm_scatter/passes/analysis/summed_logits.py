"""Finds sums along rows that only the logits of one softmax read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.lowering.inlined_sums import RowSum
from tvm_scatter.lowering.row_reductions import REDUCES_ROWS
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.fused_updates import FusedUpdates
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import current_options

from .bindings import Binding, Bindings
from .effects import may_write


def summed_logits(
    mod: tvm.IRModule,
    bindings: Bindings,
    readers: Mapping[Any, Sequence[Binding]],
    scatter: Binding,
    producers: Sequence[Binding],
) -> RowSum | None:
    """The sum along rows that a scatter can compute for its logits; ``None`` if there is none.

    Parameters
    ----------
    readers : mapping
        Who reads each variable.
    producers : sequence of Binding
        What the scatter computes itself: between such a sum and the logits there is nothing else.
    """
    call = ScatterCall.from_call(scatter.value)
    strategy = strategy_of(call.data)[1]
    if (
        not isinstance(call.updates, FusedUpdates)
        or not call.updates.has_logits
        or strategy is None
        or not strategy.backend.sums_logits_under(current_options())
    ):
        return None
    inside = {scatter.var, *(each.var for each in producers)}
    for binding in bindings.all[: scatter.at]:
        function = _reduction(mod, binding.value)
        taken = function is not None and binding.fused == scatter.fused
        reading = {reader.var for reader in readers.get(binding.var, ())}
        if (
            taken
            and reading
            and reading <= inside
            and binding.var not in bindings.returned
            and not any(may_write(each.value) for each in bindings.all[binding.at : scatter.at])
        ):
            return RowSum(binding.var, binding.value, function)
    return None


def without_unused_sums(mod: tvm.IRModule) -> tvm.IRModule:
    """The module without functions of sums along rows that nothing calls any more."""
    called: set[Any] = set()

    def visit(expression: Any) -> None:
        if isinstance(expression, tvm.ir.GlobalVar):
            called.add(expression)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    kept = {
        name: function
        for name, function in mod.functions.items()
        if name in called or REDUCES_ROWS not in (function.attrs or {})
    }
    if len(kept) == len(mod.functions):
        return mod
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)


def _reduction(mod: tvm.IRModule, value: Any) -> Any:
    """The function of a sum along rows that an expression calls; ``None`` for others."""
    is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    if not is_call or value.op.name != "relax.call_tir":
        return None
    function = mod[value.args[0]]
    return function if REDUCES_ROWS in (function.attrs or {}) else None
