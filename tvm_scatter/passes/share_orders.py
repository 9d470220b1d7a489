"""Lets scatters by one index share one order of their updates.

Implementations that write every row once order the updates by destination. The order depends on
the index alone, and all layers of a graph network, or the steps of a softmax over edges, scatter by
one index. It is made in front of the first of them, and the index is checked there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.lowering.plan import Plan, Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.ordering import LIMIT, emitted_order
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis
from tvm_scatter.passes.analysis.same_value import SameValue

from .functions import Emit, with_changes, with_values
from .known_orders import ascends
from .report import note


def ShareOrders() -> tvm.transform.Pass:
    """The pass."""

    def share(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if current_options().implementation is not None:
            # Of the implementations, only the caller's may be used.
            return mod
        return with_changes(mod, lambda name, function: _shared(mod, name.name_hint, function))

    return tvm.transform.module_pass(share, opt_level=0, name="ShareOrders")


@dataclass
class _Group:
    """Scatters by one index.

    Attributes
    ----------
    era : tuple of int
        The dataflow block, and how many bindings before have written.
    call : ScatterCall
        The first of them.
    extent : int or expression
        The number of destinations.
    scatters : list of Binding
        All of them.
    saved : float
        What they save if the order is given, as a part of what it costs.
    """

    era: tuple[int, int]
    call: ScatterCall
    extent: Any
    scatters: list[Binding]
    saved: float = 0.0
    ascending: bool = False
    _ordering: tuple[Any, Any] | None = None

    @property
    def pays(self) -> bool:
        """Whether one order for all costs less than what they save by it."""
        return self.saved > (0 if self.ascending else 1)

    def ordered(self, scatter: relax.Call, emit: Emit) -> relax.Expr:
        """A scatter that is given the order, which is emitted in front of the first of them."""
        if self._ordering is None:
            self._ordering = emitted_order(
                emit,
                self.call.indices[0],
                self.extent,
                wrap_negative=self.call.wrap_negative,
                in_range=self.call.in_range,
                ascending=self.ascending,
                operator=self.call.operator,
            )
        call = ScatterCall.from_call(scatter)
        return call.replace(indices=self.call.indices, ordering=self._ordering).to_call()


def _shared(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function with shared orders, or ``None`` if none is worth making."""
    groups = [group for group in _groups(mod, function) if group.pays]
    if not groups:
        return None
    for group in groups:
        first, *others = (each.var.name for each in group.scatters)
        said = f"shares one order with {', '.join(others)}" if others else "needs no sort"
        note("share_order", f"{name}.{first}", said + (": it ascends" if group.ascending else ""))
    changes = {
        scatter.var: partial(group.ordered, scatter.value)
        for group in groups
        for scatter in group.scatters
    }
    return with_values(mod, function, changes)


def _groups(mod: tvm.IRModule, function: relax.Function) -> list[_Group]:
    groups: list[_Group] = []
    same = SameValue(Definitions.of(function).values)
    known: IndexAnalysis | None = None
    for era, binding, planned in _candidates(function):
        [call] = planned.scatters
        extent = static_shape(call.data)[call.axes[0] if call.axes else 0]  # type: ignore[index]
        for group in groups:
            if (
                group.era == era
                and group.call.wrap_negative == call.wrap_negative
                and same_size(group.extent, extent)
                and same(group.call.indices[0], call.indices[0])
            ):
                break
        else:
            if known is None and current_options().index_facts:
                known = IndexAnalysis(mod, function)
            group = _Group(era, call, extent, [])
            group.ascending = known is not None and ascends(call.indices[0], known)
            groups.append(group)
        group.scatters.append(binding)
        group.saved += _order_cost(planned)
    return groups


def _order_cost(planned: Plan) -> float:
    """What a scatter saves where its order is given; a symbolic size is taken to be large."""
    assert planned.selection is not None, "what scatters has a selection"
    return max(branch.implementation.order_cost for branch in planned.selection.branches)


def _candidates(function: relax.Function) -> Iterator[tuple[tuple[int, int], Binding, Plan]]:
    """The scatters of dataflow blocks that can take an order."""
    writes = 0
    for binding in Bindings(function):
        if binding.fused and is_scatter(binding.value):
            planned = _plan(binding.value)
            if planned is not None and _order_cost(planned) > 0:
                yield (binding.fused, writes), binding, planned
        writes += may_write(binding.value)


def _plan(value: relax.Call) -> Plan | None:
    """The plan for a scatter; ``None`` if it cannot take an order."""
    call = ScatterCall.from_call(value)
    target, strategy = strategy_of(call.data)
    if call.form == COPY_RANGES or call.ordering or strategy is None:
        return None
    if strategy.backend.ordering is None or not isinstance(call.indices[0], relax.Var):
        return None
    planned = plan(value, target, current_options())
    if planned.way is not Way.SCATTER or not planned.lowered[0].orderable:
        return None
    sizes = planned.lowered[0].problem.items, planned.lowered[0].problem.destinations
    small = all(size.constant < LIMIT for size in sizes)
    return planned if small else None
