"""Tensors that one loop computes: they are of one shape, and computed from the same or each other.

TVM fuses what leads to one tensor. What several tensors are computed from it writes to memory, and
each of them reads it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import varies
from tvm_scatter.lowering.computed_elements import (
    Elements,
    Part,
    elements_of,
    parts_of,
    wide_sizes,
)
from tvm_scatter.lowering.fusion_patterns import (
    BROADCAST,
    INJECTIVE,
    REDUCTION,
    ROOT,
    fusion_pattern,
)
from tvm_scatter.lowering.one_loop import leaves_of
from tvm_scatter.ops.shapes import same_shape, static_shape

from .bindings import Binding, Bindings
from .call_groups import called_function

#: The most tensors that one loop computes, reads, and computes on the way.
_MOST_RESULTS = 32
_MOST_LEAVES = 16
_MOST_MEMBERS = 128
#: Neighbours are read at most so many elements apart.
_FARTHEST = 4


@dataclass
class SharedLoop:
    """Tensors that one loop computes.

    Attributes
    ----------
    sizes : list of expression
        The sizes of its axes.
    results : dict
        The calls of tensors that others read, by variable.
    inner : dict
        Those of what is only computed on the way.
    sliced : dict
        For tensors that are also a part of a result, and that TVM computes with what reads them:
        the variable of that result, and the part.
    """

    sizes: list[Any]
    results: dict[Any, Called]
    inner: dict[Any, Called] = field(default_factory=dict)
    sliced: dict[Any, tuple[Any, Part]] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The position of the first result, where all of them are computed."""
        return min(each.binding.at for each in self.results.values())

    @property
    def members(self) -> dict[Any, Elements]:
        """What elements are computed by, for each tensor that is no concatenation."""
        both = {**self.inner, **self.results}
        return {
            var: call.elements
            for var, call in both.items()
            if call.elements is not None and not call.parts
        }

    @property
    def leaves(self) -> list[Any]:
        """The tensors that it reads."""
        return leaves_of(self.members, [each.written for each in self.results.values()])


@dataclass
class Called:
    """A call of a function of TVM's, and how it may be fused.

    Attributes
    ----------
    binding : Binding
        The call.
    pattern : int
        TVM's number for what it is fused with.
    elements : Elements, optional
        What its elements are, if a loop may compute them.
    parts : list of Part, optional
        The tensors that it only puts side by side.
    is_view : bool
        Whether TVM gives the same memory another shape.
    """

    binding: Binding
    pattern: int
    elements: Elements | None
    parts: list[Part] | None
    is_view: bool

    @property
    def written(self) -> list[Part]:
        """What the loop writes of it."""
        begins = (0,) * len(self.binding.value.ty.shape.values)
        return self.parts or [Part(self.binding.var, begins)]

    @property
    def sizes(self) -> list[Any]:
        """The sizes of the loop's axes."""
        tensor = self.parts[0].tensor if self.parts else self.binding.value
        return wide_sizes(tensor.ty.shape.values)


def shared_loops(mod: tvm.IRModule, function: relax.Function) -> list[SharedLoop]:
    """The loops that compute several tensors of a function.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    return _Search(mod, Bindings(function)).found()


class _Search:
    def __init__(self, mod: tvm.IRModule, bindings: Bindings) -> None:
        self.bindings = bindings
        self.readers = bindings.readers()
        self.position = {each.var: each.at for each in bindings}
        self.calls = _calls(mod, bindings)
        #: The loop of each tensor that is computed in one.
        self.loops: dict[Any, SharedLoop] = {}
        #: The tensors that something reads from memory.
        self.in_memory: set[Any] = set()
        #: What TVM computes a tensor in, for those that it fuses with one reader.
        self.taken: dict[Any, Any] = {}
        #: How many products come before each position.
        self.products = [0]
        for each in bindings:
            is_product = each.var in self.calls and self.calls[each.var].pattern == ROOT
            self.products.append(self.products[-1] + is_product)
        self.behind = self._behind_products()

    def found(self) -> list[SharedLoop]:
        """The loops of several results."""
        for binding in reversed(self.bindings.all):
            if binding.var in self.calls:
                self._visit(self.calls[binding.var])
        self._share_leaves()
        loops = {id(each): each for each in self.loops.values()}.values()
        several = [each for each in loops if len(each.results) > 1]
        for each in several:
            self._slice(each)
        return several

    def _visit(self, call: Called) -> None:
        """Decide where a tensor is computed. All that reads it is decided."""
        var, needed = call.binding.var, self._is_output(call.binding)
        sinks: list[Any] = []
        for reader in self.readers.get(var, ()):
            sink = self._sink(call, reader)
            needed |= sink is None
            if sink is not None and not any(sink is each for each in sinks):
                sinks.append(sink)
        loops = [each for each in sinks if isinstance(each, SharedLoop)]
        if needed:
            self.in_memory.add(var)
        computed = call.elements is not None and not call.parts and var not in self.behind
        if not needed and len(sinks) == 1 and not (loops and computed):
            self.taken[var] = sinks[0]
            return
        shared = not needed and computed and loops and len(loops) == len(sinks)
        if not (shared and self._compute_in(loops, call)):
            self._compute_alone(call, loops)

    def _compute_in(self, loops: Sequence[SharedLoop], call: Called) -> bool:
        """Compute a tensor where it is read, if all its readers may be in one loop."""
        first, *others = loops
        if not all(same_shape(first.sizes, other.sizes) for other in others):
            return False
        results = {var: each for loop in loops for var, each in loop.results.items()}
        inner = {var: each for loop in loops for var, each in loop.inner.items()}
        return self._take_over(SharedLoop(first.sizes, results, {**inner, call.binding.var: call}))

    def _compute_alone(self, call: Called, loops: Sequence[SharedLoop]) -> None:
        """Compute a tensor for memory, with its readers if that can be."""
        var = call.binding.var
        is_element = call.elements is not None and not call.is_view and var not in self.behind
        if not is_element or not call.sizes:
            self.taken[var] = call
            return
        self.loops[var] = SharedLoop(call.sizes, {var: call})
        for other in loops:
            self._join(self.loops[var], other)

    def _sink(self, call: Called, reader: Binding) -> Any:
        """What a reader is computed in, if it may be computed from a tensor not in memory."""
        known = self.calls.get(reader.var)
        if known is None or reader.fused != call.binding.fused:
            return None
        if reader.var in self.loops:
            return self.loops[reader.var]
        if known.pattern <= INJECTIVE:
            sink = self.taken.get(reader.var, known)
            return None if known.is_view and sink is known else sink
        return known if known.pattern == REDUCTION and call.pattern <= BROADCAST else None

    def _is_output(self, binding: Binding) -> bool:
        returned = binding.var in self.bindings.returned
        return returned or not isinstance(binding.var, relax.DataflowVar)

    def _join(self, loop: SharedLoop, other: SharedLoop) -> None:
        """Compute the tensors of two loops in one, if that can be."""
        if loop is not other and same_shape(loop.sizes, other.sizes):
            results = {**loop.results, **other.results}
            self._take_over(SharedLoop(loop.sizes, results, {**loop.inner, **other.inner}))

    def _take_over(self, merged: SharedLoop) -> bool:
        fits = self._fits(merged)
        if fits:
            self.loops.update(dict.fromkeys([*merged.inner, *merged.results], merged))
        return fits

    def _fits(self, loop: SharedLoop) -> bool:
        """Whether all is there where the first result is computed, and not too much."""
        if len(loop.results) == 1:
            return True
        calls, leaves = [*loop.results.values(), *loop.inner.values()], loop.leaves
        if len({each.binding.fused for each in calls}) > 1 or len(leaves) > _MOST_LEAVES:
            return False
        if len(loop.results) > _MOST_RESULTS or len(calls) > _MOST_MEMBERS:
            return False
        first = loop.first
        last = max(each.binding.at for each in loop.results.values())
        # Computed in front of a product, a tensor would take memory while the product runs.
        if self.products[last] > self.products[first]:
            return False
        return all(self.position.get(each, -1) < first for each in leaves)

    def _share_leaves(self) -> None:
        """Join loops that read a tensor of their own size."""
        readers: dict[Any, list[Any]] = {}
        for var, loop in self.loops.items():
            if var in loop.results:
                for leaf in loop.leaves:
                    if same_shape(wide_sizes(static_shape(leaf) or [0]), loop.sizes):
                        readers.setdefault(leaf, []).append(var)
        for first, *others in readers.values():
            for other in others:
                self._join(self.loops[first], self.loops[other])

    def _slice(self, loop: SharedLoop) -> None:
        """Let what is written as a part of a result be read from there, if TVM fuses the read."""
        for var, call in list(loop.results.items()):
            for part in call.parts or ():
                known = loop.results.get(part.tensor)
                if known is not None and not known.parts and part.tensor not in self.in_memory:
                    loop.inner[part.tensor] = loop.results.pop(part.tensor)
                    loop.sliced[part.tensor] = (var, part)

    def _behind_products(self) -> set[Any]:
        """What TVM computes in the product that it follows."""
        found: set[Any] = set()
        for var, call in self.calls.items():
            if call.pattern <= BROADCAST:
                for operand in call.binding.reads:
                    made = self.calls.get(operand)
                    alone = len(self.readers[operand]) == 1
                    if made and alone and (made.pattern == ROOT or operand in found):
                        found.add(var)
        return found


def _calls(mod: tvm.IRModule, bindings: Bindings) -> dict[Any, Called]:
    """The calls of functions that TVM has legalized, by variable."""
    found: dict[Any, Called] = {}
    for binding in bindings:
        function = called_function(binding, mod)
        if function is None:
            continue
        pattern = fusion_pattern(function)
        elements = elements_of(binding.value, function) if pattern <= INJECTIVE else None
        parts = None if elements is None else _equal_parts(elements)
        if elements is not None and not parts and not _is_near(elements):
            elements = None
        view = pattern <= INJECTIVE and _is_view(binding, function)
        found[binding.var] = Called(binding, pattern, elements, parts, view)
    return found


def _equal_parts(elements: Elements) -> list[Part] | None:
    """The tensors that one is a concatenation of, if they have one shape."""
    parts = parts_of(elements)
    if parts is None:
        return None
    first, *others = (static_shape(part.tensor) for part in parts)
    return parts if all(same_shape(first, other) for other in others) else None


def _is_near(elements: Elements) -> bool:
    """Whether neighbours are computed from neighbours."""
    wide = wide_sizes(elements.sizes)
    if not wide:
        return False
    last = next(
        axis
        for axis, size in reversed(list(zip(elements.axes, elements.sizes, strict=True)))
        if size is wide[-1]
    )
    return all(_reads_neighbours(load, last) for load in loads_of(elements.value))


def _is_view(binding: Binding, function: tirx.PrimFunc) -> bool:
    """Whether TVM gives the same memory another shape. It does not where others may have both."""
    if not isinstance(binding.var, relax.DataflowVar):
        return False
    try:
        if not relax.analysis.has_reshape_pattern(function):
            return False
    except tvm.error.InternalError:
        # It fails at transposes of tensors whose sizes are sums.
        return False
    [given, *_] = binding.value.args[1].fields
    return not same_shape(static_shape(given), static_shape(binding.value))


def _reads_neighbours(load: Any, axis: Any) -> bool:
    moved = [at for at, index in enumerate(load.indices) if varies(index, axis)]
    if not moved:
        return True
    at, *others = moved
    inner = load.source.ty.shape[at + 1 :]
    if others or not all(isinstance(size, tirx.IntImm) for size in inner):
        return False
    step = Analyzer().simplify(substitute(load.indices[at], {axis: axis + 1}) - load.indices[at])
    is_next = isinstance(step, tirx.IntImm) and int(step) == 1
    return is_next and prod(map(int, inner)) <= _FARTHEST
