"""Drops the indices of scatters that are given an order and read nothing else.

Where the order is made without the index, such as from the offsets of bags, nobody need compute it
then. A tensor that is only allocated stands in its place. An index that is given beside offsets
alone is not read either: it may be anything.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.plan import Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import unwritten
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Bindings

from .functions import Change, Emit, with_changes, with_values


def UnreadIndices() -> tvm.transform.Pass:
    """The pass."""

    def drop(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda _name, function: _without(mod, function))

    return tvm.transform.module_pass(drop, opt_level=0, name="UnreadIndices")


def _without(mod: tvm.IRModule, function: relax.Function) -> relax.Function | None:
    """The function without indices that nothing reads; ``None`` if there are none."""
    bindings = Bindings(function)
    values = {binding.var: binding.value for binding in bindings}
    calls: dict[Any, ScatterCall] = {}
    for binding in bindings:
        if is_scatter(binding.value):
            call = ScatterCall.from_call(binding.value)
            if _is_made_apart(call, values) and _is_unread(binding.value, call):
                calls[binding.var] = call
    # Where somebody else reads an index, it is computed all the same.
    readers = bindings.readers()
    kept = bindings.returned | {
        index for index, found in readers.items() if any(each.var not in calls for each in found)
    }
    found: dict[Any, relax.Expr | Change] = {}
    for var, call in calls.items():
        index = call.indices[0]
        if index in values and index not in kept:
            found[var] = partial(_by_order_alone, call)
        elif index not in values and len(call.ordering) == 1:
            found[var] = call.replace(order_alone=True).to_call()
    return with_values(mod, function, found) if found else None


def _by_order_alone(call: ScatterCall, emit: Emit) -> relax.Expr:
    """The scatter, with an index that nothing has written."""
    return call.replace(indices=(emit(unwritten(call.indices[0].ty)),), order_alone=True).to_call()


def _is_made_apart(call: ScatterCall, values: dict[Any, relax.Expr]) -> bool:
    """Whether a scatter has an order that the operator for it has not made of the index."""
    if not call.ordering or call.order_alone:
        return False
    offsets = call.ordering[-1]
    return not isinstance(values.get(offsets, offsets), relax.TupleGetItem)


def _is_unread(value: relax.Call, call: ScatterCall) -> bool:
    if call.data.ty.vdevice is not None:
        # What is only allocated lies on the first device of the program.
        return False
    target, strategy = strategy_of(call.data)
    if strategy is None:
        return False
    try:
        planned = plan(value, target, current_options())
    except ScatterError:
        return False
    if planned.way is not Way.SCATTER or planned.selection is None:
        return False
    # An order that no implementation takes was left out: then the index is read.
    branches = planned.selection.branches
    return all(branch.implementation.takes_order_alone for branch in branches)
