"""Lets scatters by one index share one order of their updates.

Implementations that write every row once order the updates by destination. The order depends on
the index alone, and all layers of a graph network, or the steps of a softmax over edges, scatter by
one index. It is made in front of the first of them, and the index is checked there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.emit.ordering import numbers_fit
from tvm_scatter.lowering.plan import Plan, Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.ordering import emitted_order
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.greatest_sizes import greatest, greatest_sizes
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis
from tvm_scatter.passes.analysis.same_value import SameValue
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.backend import Backend

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
    backend : Backend
        Facts about the target.
    scatters : list of Binding
        All of them.
    saved : float
        What they save if the order is given, as a part of what a radix sort costs.
    ascending : bool
        Whether the index ascends, so that nothing is sorted.
    """

    era: tuple[int, int]
    call: ScatterCall
    extent: Any
    backend: Backend
    scatters: list[Binding] = field(default_factory=list)
    saved: float = 0.0
    ascending: bool = False
    _ordering: tuple[Any, ...] | None = None

    @property
    def pays(self) -> bool:
        """Whether one order for all costs less than what is saved by it."""
        if self.ascending:
            return self.saved > 0
        return len(self.scatters) > 1 and self.saved > self._cost

    @property
    def _cost(self) -> float:
        assert self.backend.ordering is not None, "what nothing orders is no candidate"
        return self.backend.ordering.cost

    def __str__(self) -> str:
        """What it does, as a clause."""
        _, *others = (each.var.name for each in self.scatters)
        said = f"shares one order with {', '.join(others)}" if others else "needs no sort"
        if self.ascending:
            return f"{said}: it ascends"
        parts = (round(100 * each) for each in (self._cost, self.saved))
        return said + ": it takes {} % of a radix sort, and saves {} %".format(*parts)

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
                offsets_only=self.ascending,
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
        note("share_order", f"{name}.{group.scatters[0].var.name}", str(group))
    changes = {
        scatter.var: partial(group.ordered, scatter.value)
        for group in groups
        for scatter in group.scatters
    }
    return with_values(mod, function, changes)


def _groups(mod: tvm.IRModule, function: relax.Function) -> list[_Group]:
    """Scatters by one index that save something by an order, where that may pay."""
    found: list[_Group] = []
    groups = _by_index(function)
    most = greatest_sizes(function) if groups else {}
    known: IndexAnalysis | None = None
    for group in groups:
        if current_options().index_facts:
            known = known or IndexAnalysis(mod, function)
            group.ascending = ascends(group.call.indices[0], known)
        if len(group.scatters) == 1 and not group.ascending:
            # It is not asked how it is computed, which takes longer than all else here.
            continue
        saving = [(each, _saved(each.value, most)) for each in group.scatters]
        saving = [(each, saved) for each, saved in saving if saved > 0]
        if saving:
            group.scatters = [each for each, _ in saving]
            group.saved = sum(saved for _, saved in saving)
            group.call = ScatterCall.from_call(group.scatters[0].value)
            found.append(group)
    return found


def _by_index(function: relax.Function) -> list[_Group]:
    """The scatters of dataflow blocks that may take an order, together where the index is one."""
    groups: list[_Group] = []
    same = SameValue(Definitions.of(function).values)
    writes = 0
    for binding in Bindings(function):
        if binding.fused and is_scatter(binding.value):
            era, call = (binding.fused, writes), ScatterCall.from_call(binding.value)
            shape, backend = static_shape(call.data), _backend(call)
            if shape and backend is not None:
                extent = shape[call.axes[0] if call.axes else 0]
                for group in groups:
                    if (
                        group.era == era
                        and group.call.wrap_negative == call.wrap_negative
                        and same_size(group.extent, extent)
                        and same(group.call.indices[0], call.indices[0])
                    ):
                        break
                else:
                    group = _Group(era, call, extent, backend)
                    groups.append(group)
                group.scatters.append(binding)
        writes += may_write(binding.value)
    return groups


def _saved(value: relax.Call, most: Mapping[str, int]) -> float:
    """What a scatter saves where its order is given, as a part of what a radix sort costs.

    It is computed as it is for the greatest sizes that it can have. Where they are not known, it
    saves what it does for all sizes or, if the options ask for orders, for some.
    """
    planned = _plan(value)
    if planned is None:
        return 0.0
    assert planned.selection is not None, "what scatters has a selection"
    branches = planned.selection.branches
    saved = [branch.implementation.order_cost for branch in branches]
    if len(branches) == 1:
        return saved[0]
    sizes = {name: greatest(size, most) for name, size in planned.symbols.items()}
    if None in sizes.values():
        return max(saved) if current_options().share_order else min(saved)
    found = Sizes.of(planned.lowered[0].problem, sizes)
    times = [branch.predict(found).microseconds for branch in branches if branch.predict]
    return saved[times.index(min(times))]


def _backend(call: ScatterCall) -> Backend | None:
    """Facts about the target of a scatter; ``None`` if it cannot take an order."""
    _, strategy = strategy_of(call.data)
    if call.form == COPY_RANGES or call.ordering or strategy is None:
        return None
    if call.leaves_out:
        # Who makes an order reports bad indices.
        return None
    if not strategy.backend.shares_orders_under(current_options()):
        return None
    if strategy.backend.ordering is None or not isinstance(call.indices[0], relax.Var):
        return None
    return strategy.backend


def _plan(value: relax.Call) -> Plan | None:
    """The plan for a scatter; ``None`` if it cannot take an order."""
    target, _ = strategy_of(ScatterCall.from_call(value).data)
    planned = plan(value, target, current_options())
    if planned.way is not Way.SCATTER or not planned.lowered[0].orderable:
        return None
    return planned if numbers_fit(planned.lowered[0].problem) else None
