"""Which bindings do not depend on each other, and an order in which those stand together."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm import relax

from tvm_scatter.lowering.batched import is_batch, scatters_of
from tvm_scatter.ops.scatter_call import is_scatter

from .aliasing import Storage
from .bindings import Step, Steps
from .effects import CALL_TIR_INPLACE, may_write
from .sharing import overwritten_operands


def overwritten(function: relax.Function, steps: Steps) -> list[frozenset[Any]]:
    """For each step, the variables in whose memory it writes, of those that are bound by then."""
    return [written for written, _ in _walk(function, steps)]


def predecessors(function: relax.Function, steps: Steps) -> list[set[int]]:
    """For each step, those that must come before it: all of them do already."""
    places = {step.var: step.at for step in steps}
    before = [{places[read] for read in step.reads if read in places} for step in steps]
    writers: list[tuple[int, frozenset[Any]]] = []
    for step, (written, storage) in zip(steps, _walk(function, steps), strict=True):
        before[step.at] |= {other.at for other in steps.all[: step.at] if other.reads & written}
        before[step.at] |= {
            at
            for at, variables in writers
            if any(storage.members(variable) & step.reads for variable in variables)
        }
        # Of a scatter that is in place it is proved that nothing reads what it overwrites.
        if written and not is_scatter(step.value):
            writers.append((step.at, written))
    return before


def _walk(function: relax.Function, steps: Steps) -> Iterator[tuple[frozenset[Any], Storage]]:
    """What each step writes to, and what shares memory when it does."""
    storage = Storage(function, ())
    for step in steps:
        variables = [each for each in _targets(step) if isinstance(each, relax.Var)]
        yield frozenset().union(*map(storage.members, variables)), storage
        storage.add(step)
        if is_scatter(step.value) and may_write(step.value):
            storage.join(step.var, step.value.args[0])


def _targets(step: Step) -> Iterable[Any]:
    """The tensors that a step may write to."""
    value = step.value
    if not may_write(value):
        return ()
    if is_scatter(value):
        return (value.args[0],)
    if is_batch(value):
        return [each.data for each in scatters_of(value)]
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == CALL_TIR_INPLACE:
        return overwritten_operands(value)
    return step.reads


def independent(
    before: Sequence[Iterable[int]], kinds: Mapping[int, Hashable], most: int
) -> list[list[int]]:
    """Steps of one kind of which none comes before another.

    No step of a group comes between two of another group, whichever groups are chosen.

    Parameters
    ----------
    before : sequence of iterable of int
        As of :func:`predecessors`.
    kinds : mapping
        What kind a step is; those without one stay alone.
    most : int
        How many a group holds.
    """
    # How many steps with a kind come one after the other up to each: along a path it grows.
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
    """All steps in order, each group where its last member was, what reads it no earlier."""
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
