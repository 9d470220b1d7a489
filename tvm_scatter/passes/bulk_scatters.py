"""Scatters into one tensor, one after another, become one scatter.

A model that writes ``x[0] = a; x[1] = b`` arrives as a chain: each link copies x and launches
again. The links are put end to end, in their order, so that the last write still wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor

from tvm_scatter.legalize import strategy_of
from tvm_scatter.lower import operator_name
from tvm_scatter.ops import Run, assign

from .broadcast_source import static_shape
from .definitions import Definitions
from .effects import may_write
from .fold_broadcast_index import is_ours_to_change, is_scatter
from .known_values import numbers
from .links import Link, RowLink, link_of
from .notes import note

#: What one more launch costs, in bytes that could have been moved instead.
_LAUNCH_BYTES = 8 << 20
#: A function has an argument for each link; a longer chain becomes several.
_MOST_LINKS = 128
#: Ranges that one function tells apart.
_MOST_RUNS = 256


def BulkScatters() -> tvm.transform.Pass:
    """The pass."""

    def bulk(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        result = mod
        for name, function in mod.functions.items():
            if is_ours_to_change(function):
                merged = _bulk_function(mod, name.name_hint, function)
                if merged is not None:
                    result = mod.clone() if result is mod else result
                    result.update_func(name, merged)
        return result

    return tvm.transform.module_pass(bulk, opt_level=0, name="BulkScatters")


@dataclass(frozen=True)
class _Chain:
    """Links in order, and the variables that they are bound to."""

    links: Sequence[Link]
    variables: Sequence[Any]

    @property
    def operator(self) -> str:
        names = list(dict.fromkeys(operator_name(link.call) for link in self.links))
        return f"{len(self.links)} x {' and '.join(names)}"

    @cached_property
    def positions(self) -> np.ndarray[Any, Any] | None:
        """Where every update goes, if all is known."""
        known = [link.positions for link in self.links if link.positions is not None]
        return np.concatenate(known) if len(known) == len(self.links) else None

    @cached_property
    def runs(self) -> list[Run] | None:
        """What each link writes that no later link overwrites; ``None`` if it is not known."""
        first = self.links[0]
        if not isinstance(first, RowLink) or len(first.axes) > 1 or first.reduction != "update":
            return None
        if self.positions is None or not len(self.positions):
            return None
        counts = [int(link.count) for link in self.links]
        sources = np.repeat(np.arange(len(counts)), counts)
        begins = np.concatenate([np.arange(count) for count in counts])
        places, backwards = np.unique(self.positions[::-1], return_index=True)
        written = len(self.positions) - 1 - backwards
        sources, begins = sources[written], begins[written]
        steps = [np.diff(numbers) for numbers in (sources, begins, places)]
        broken = (steps[0] != 0) | (steps[1] != 1) | (steps[2] != 1)
        starts = np.concatenate([[0], np.flatnonzero(broken) + 1])
        if len(starts) > _MOST_RUNS:
            return None
        lengths = np.diff([*starts, len(places)])
        columns = (sources[starts], begins[starts], places[starts], lengths)
        return list(zip(*(column.tolist() for column in columns), strict=True))


def _bulk_function(mod: tvm.IRModule, name: str, function: relax.Function) -> Any:
    """The function with its chains merged, or ``None`` if it holds none."""
    if not _scatters(function):
        return None
    # A read that nothing uses would make an intermediate value look as if it were needed.
    function = relax.analysis.remove_all_unused(function)
    definitions = Definitions.of(function)
    blocks = _Blocks()
    blocks.visit_expr(function)
    chains = [
        chain
        for bindings in blocks.found
        for chain in _chains(bindings, definitions)
        if _pays(chain)
    ]
    if not chains:
        return None
    for chain in chains:
        where = f"{name}.{chain.variables[-1].name}"
        note("bulk", where, f"is {chain.operator} in one")
    return _Merger(mod, chains).visit_expr(function)


def _scatters(function: relax.Function) -> int:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        function, lambda expr: found.append(expr) if is_scatter(expr) else None
    )
    return len(found) > 1


@visitor
class _Blocks(PyExprVisitor):
    """The bindings of each block, nested ones included."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[Any]] = []

    def visit_binding_block_(self, block: relax.BindingBlock) -> None:
        self.found.append(list(block.bindings))
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> None:
        self.visit_binding_block_(block)


def _chains(bindings: Sequence[Any], definitions: Definitions) -> list[_Chain]:
    """Chains of two links and more of one block."""
    open_chains: dict[Any, tuple[list[Link], list[Any]]] = {}
    done: list[_Chain] = []

    def close(tail: Any) -> None:
        links, variables = open_chains.pop(tail)
        if len(links) > 1:
            done.append(_Chain(links, variables))

    for binding in bindings:
        value = getattr(binding, "value", None)
        if may_write(value):
            # What is merged moves down to the last link, and must not move past a write.
            for tail in list(open_chains):
                close(tail)
            continue
        if not is_scatter(value) or strategy_of(value)[1] is None:
            continue
        link = link_of(value, definitions.values)
        if link is None:
            continue
        links, variables = [link], [binding.var]
        if link.data in open_chains and definitions.uses[link.data] == 1:
            before = open_chains[link.data]
            if len(before[0]) < _MOST_LINKS and _continues(before[0], link):
                del open_chains[link.data]
                links, variables = [*before[0], link], [*before[1], binding.var]
        open_chains[binding.var] = (links, variables)
    for tail in list(open_chains):
        close(tail)
    return done


def _continues(links: Sequence[Link], link: Link) -> bool:
    wraps = {each.wrap_negative for each in (*links, link)} - {None}
    return len(wraps) <= 1 and link.continues(links[-1])


def _pays(chain: _Chain) -> bool:
    """Whether a copy of the updates costs less than the copies of the data and the launches."""
    if chain.runs is not None:
        return True
    sizes = [_bytes(chain.links[0].data.ty.dtype, static_shape(chain.links[0].data))]
    sizes += [_bytes(link.data.ty.dtype, link.update_shape) for link in chain.links]
    if None in sizes:
        return True
    data, *updates = (int(size) for size in sizes if size is not None)
    cost = 2 * sum(updates)
    if chain.links[0].reduction == "update" and not _distinct(chain.positions):
        # The last write must win, and takes a map of the places to be found.
        row = max(1, sum(updates) // max(1, sum(int(link.count) for link in chain.links)))
        cost += 16 * (data // row)
    return cost <= (len(chain.links) - 1) * (2 * data + _LAUNCH_BYTES)


def _bytes(dtype: Any, shape: Any) -> int | None:
    static = numbers(shape)
    if static is None:
        return None
    width: int = max(1, tvm.DataType(str(dtype)).bits // 8)
    return int(np.prod(static, dtype=np.int64)) * width


@mutator
class _Merger(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, chains: Sequence[_Chain]) -> None:
        super().__init__(mod)
        self.last = {chain.variables[-1]: chain for chain in chains}
        self.dropped = {var for chain in chains for var in chain.variables[:-1]}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.dropped:
            return
        if binding.var in self.last:
            binding = relax.VarBinding(binding.var, self._merged(self.last[binding.var]))
        super().visit_var_binding_(binding)

    def _merged(self, chain: _Chain) -> relax.Call:
        emit, visit = self.builder_.emit, self.visit_expr
        first = chain.links[0]
        data, runs = visit(first.data), chain.runs
        if runs is not None and isinstance(first, RowLink):
            used = sorted({source for source, *_ in runs})
            sources = [chain.links[source].updates(visit, emit) for source in used]
            runs = [(used.index(source), *rest) for source, *rest in runs]  # type: ignore[misc]
            return assign(data, sources, runs, first.axes[0], chain.operator)
        updates = [link.updates(visit, emit) for link in chain.links]
        wraps = {link.wrap_negative for link in chain.links} - {None}
        unique = _distinct(chain.positions)
        return first.merged(
            data,
            self._indices(chain),
            emit(relax.op.concat(updates, first.joint)),
            wrap_negative=any(wraps),
            unique=unique,
            ordered=first.reduction == "update" and not unique,
            operator=chain.operator,
        )

    def _indices(self, chain: _Chain) -> list[Any]:
        first, positions = chain.links[0], chain.positions
        if positions is not None and isinstance(first, RowLink):
            extents = numbers([(static_shape(first.data) or [])[axis] for axis in first.axes])
            vectors = np.unravel_index(positions, extents or ())
            return [relax.const(vector, "int64") for vector in vectors]
        dtypes = {dtype for link in chain.links for dtype in link.index_dtypes}
        dtype = dtypes.pop() if len(dtypes) == 1 else "int64"
        emit = self.builder_.emit
        parts = [link.indices(self.visit_expr, emit, dtype) for link in chain.links]
        return [
            emit(relax.op.concat(list(tensors), first.index_joint))
            for tensors in zip(*parts, strict=True)
        ]


def _distinct(positions: np.ndarray[Any, Any] | None) -> bool:
    return positions is not None and len(np.unique(positions)) == len(positions)
