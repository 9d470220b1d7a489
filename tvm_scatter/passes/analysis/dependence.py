"""Groups independent bindings, and orders all bindings so that groups stand together."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm import relax

from tvm_scatter.lowering.batched import is_batch, scatters_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.scatter_call import is_scatter

from .aliasing import Storage
from .bindings import Binding, Bindings
from .effects import CALL_TIR_INPLACE, may_write
from .sharing import overwritten_operands
from .size_order import new_sizes, sizes_of_parameters, sizes_read


def overwritten(function: relax.Function, bindings: Bindings) -> list[frozenset[Any]]:
    """For each binding, the earlier variables whose memory it writes to."""
    return [written for written, _ in _walk(function, bindings)]


def predecessors(function: relax.Function, bindings: Bindings) -> list[set[int]]:
    """For each binding, the earlier bindings that must stay before it."""
    places = {binding.var: binding.at for binding in bindings}
    before = [{places[read] for read in binding.reads if read in places} for binding in bindings]
    for known, makers in zip(before, _makers_of_sizes(function, bindings), strict=True):
        known |= makers
    writers: list[tuple[int, frozenset[Any]]] = []
    for binding, (written, storage) in zip(bindings, _walk(function, bindings), strict=True):
        earlier = bindings.all[: binding.at]
        before[binding.at] |= {other.at for other in earlier if other.reads & written}
        before[binding.at] |= {
            at
            for at, variables in writers
            if any(storage.members(variable) & binding.reads for variable in variables)
        }
        # An in-place scatter is left out: it is proved that nothing later reads what it overwrites.
        if written and not is_scatter(binding.value):
            writers.append((binding.at, written))
    return before


def _makers_of_sizes(function: relax.Function, bindings: Bindings) -> Iterator[set[int]]:
    """For each binding, the earlier ones that make known the sizes that it reads."""
    known, makers = sizes_of_parameters(function), dict[Any, int]()
    for binding in bindings:
        yield {makers[size] for size in sizes_read(binding.node) if size in makers}
        found = new_sizes(binding.node, known)
        known |= found
        makers.update(dict.fromkeys(found, binding.at))


def _walk(function: relax.Function, bindings: Bindings) -> Iterator[tuple[frozenset[Any], Storage]]:
    """For each binding, the variables that it overwrites and the storage just before it runs."""
    storage = Storage(function, ())
    for binding in bindings:
        variables = [each for each in _targets(binding) if isinstance(each, relax.Var)]
        yield frozenset().union(*map(storage.members, variables)), storage
        storage.add(binding)
        if is_scatter(binding.value) and may_write(binding.value):
            storage.join(binding.var, binding.value.args[0])


def _targets(binding: Binding) -> Iterable[Any]:
    """The tensors that a binding may write to."""
    value = binding.value
    if not may_write(value):
        return ()
    if is_scatter(value):
        return (value.args[0],)
    if is_batch(value):
        return [each.data for each in scatters_of(value)]
    if operator_of(value) == CALL_TIR_INPLACE:
        return overwritten_operands(value)
    return binding.reads


def independent(
    before: Sequence[Iterable[int]], kinds: Mapping[int, Hashable], most: int
) -> list[list[int]]:
    """Groups of at least two bindings of one kind that do not depend on each other.

    Groups never depend on each other in a circle, whichever of them are used.

    Parameters
    ----------
    before : sequence of iterable of int
        The predecessors of each binding, as :func:`predecessors` returns them.
    kinds : mapping
        The kind of each binding that may be grouped.
    most : int
        The largest size of a group.
    """
    # The most bindings with a kind on any path to each binding. Of two bindings with a kind of
    # which one depends on the other, the later is deeper, so equal depth means independence.
    depths: list[int] = []
    groups: dict[Hashable, list[int]] = {}
    for at, earlier in enumerate(before):
        depths.append(max((depths[other] + (other in kinds) for other in earlier), default=0))
        if at in kinds:
            groups.setdefault((depths[at], kinds[at]), []).append(at)
    parts = [
        members[begin : begin + most]
        for members in groups.values()
        for begin in range(0, len(members), most)
    ]
    return [part for part in parts if len(part) > 1]


def order(before: Sequence[Iterable[int]], groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """All bindings in a valid order; each group stands where its last member was, or later."""
    nodes = [*map(list, groups)]
    grouped = {at for group in groups for at in group}
    nodes += [[at] for at in range(len(before)) if at not in grouped]
    node_of = {at: number for number, node in enumerate(nodes) for at in node}
    waits_for = [{node_of[other] for at in node for other in before[at]} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for number, earlier in enumerate(waits_for):
        for other in earlier:
            readers[other].append(number)
    missing = [len(earlier) for earlier in waits_for]
    ready = [(max(nodes[number]), number) for number, left in enumerate(missing) if not left]
    heapq.heapify(ready)
    found = []
    while ready:
        _, number = heapq.heappop(ready)
        found.append(nodes[number])
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (max(nodes[reader]), reader))
    return found
