"""Merges chains of scatters into the same tensor into one scatter.

A model that writes ``x[0] = a; x[1] = b`` arrives as a chain: each scatter copies x and launches
again. The updates are concatenated in order, so that the last write still wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.operators import select_rows
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.passes.analysis.blocks import blocks_of
from tvm_scatter.passes.analysis.created import fill_value, made_by
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.known_values import numbers
from tvm_scatter.passes.analysis.overwritable import overwrites

from .chains import Chain, Form, cheapest_form
from .may_overwrite import overwriting_pass
from .nested_writes import flatten_nested_writes
from .normalised_scatters import NormalisedRows, NormalisedScatter, normalised
from .report import note

#: The largest number of scatters merged into one: each adds an argument to the function.
_MOST_SCATTERS = 128


def MergeScatterChains(in_place: bool = False, donate: Iterable[str] = ()) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    in_place : bool
        Whether ReuseBuffers runs afterwards. Then scatters that stay apart may need no copies.
    donate : iterable of str
        Names of parameters that the caller gives away, as for
        :func:`~tvm_scatter.passes.ReuseBuffers`.
    """
    return overwriting_pass("MergeScatterChains", _bulk_function, in_place, donate)


def _bulk_function(
    mod: tvm.IRModule, name: str, function: relax.Function, donated: Sequence[Any] | None
) -> Any:
    """The function with its chains merged, or ``None`` if nothing changes."""
    if not _scatters(function):
        return None
    # An unused read of an intermediate value would keep a chain from being merged.
    function = relax.analysis.remove_all_unused(function)
    flat = flatten_nested_writes(mod, function)
    changed, function = flat is not function, flat
    definitions = Definitions.of(function)
    overwritten = {} if donated is None else overwrites(function, donated).found
    plans: dict[Any, tuple[Chain, Form]] = {
        chain.variables[-1]: (chain, form)
        for bindings in blocks_of(function)
        for chain in _chains(bindings, definitions)
        for form in [cheapest_form(chain, chain.variables[0] in overwritten, definitions.values)]
        if form is not Form.APART
    }
    if not plans:
        return function if changed else None
    for last, (chain, _) in plans.items():
        note("bulk", f"{name}.{last.name}", f"is {chain.operator} in one")
    return _Merger(mod, plans, definitions.values).visit_expr(function)


def _scatters(function: relax.Function) -> int:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        function, lambda expr: found.append(expr) if is_scatter(expr) else None
    )
    return len(found) > 1


def _chains(bindings: Sequence[Any], definitions: Definitions) -> list[Chain]:
    """The chains of at least two scatters in one block."""
    open_chains: dict[Any, tuple[list[NormalisedScatter], list[Any]]] = {}
    done: list[Chain] = []

    def close(tail: Any) -> None:
        scatters, variables = open_chains.pop(tail)
        if len(scatters) > 1:
            done.append(Chain(scatters, variables))

    for binding in bindings:
        value: Any = getattr(binding, "value", None)
        if may_write(value):
            # A merged chain runs where its last scatter was. It must not move past a write.
            for tail in list(open_chains):
                close(tail)
            continue
        if not is_scatter(value) or strategy_of(value.args[0])[1] is None:
            continue
        scatter = normalised(ScatterCall.from_call(value), definitions.values)
        if scatter is None:
            continue
        scatters, variables = [scatter], [binding.var]
        if scatter.data in open_chains and definitions.uses[scatter.data] == 1:
            before = open_chains[scatter.data]
            if len(before[0]) < _MOST_SCATTERS and _continues(before[0], scatter):
                del open_chains[scatter.data]
                scatters, variables = [*before[0], scatter], [*before[1], binding.var]
        open_chains[binding.var] = (scatters, variables)
    for tail in list(open_chains):
        close(tail)
    return done


def _continues(scatters: Sequence[NormalisedScatter], scatter: NormalisedScatter) -> bool:
    wraps = {each.wrap_negative for each in (*scatters, scatter)} - {None}
    if len(wraps) > 1 or not scatter.call.asks_as(scatters[-1].call):
        return False
    longer = Chain([*scatters, scatter], ())
    if longer.is_mixed:
        # Writes of rows, columns and elements are merged only if all places are known.
        return longer.ranges is not None
    return scatter.continues(scatters[-1])


@mutator
class _Merger(PyExprMutator):
    def __init__(
        self,
        mod: tvm.IRModule,
        plans: dict[Any, tuple[Chain, Form]],
        values: Mapping[Any, Any],
    ) -> None:
        super().__init__(mod)
        self.values = values
        self.plans = plans
        self.dropped = {var for chain, _ in plans.values() for var in chain.variables[:-1]}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.dropped:
            return
        if binding.var in self.plans:
            chain, form = self.plans[binding.var]
            make = {
                Form.COPY_RANGES: self._copy_ranges,
                Form.SELECT_ROWS: self._select_rows,
                Form.JOIN: self._join,
            }
            binding = relax.VarBinding(binding.var, make[form](chain))
        super().visit_var_binding_(binding)

    def _copy_ranges(self, chain: Chain) -> relax.Call:
        emit, first = self.builder_.emit, chain.scatters[0]
        used = sorted({each.source for each in chain.ranges or ()})
        ranges = [each._replace(source=used.index(each.source)) for each in chain.ranges or ()]
        sources = [chain.scatters[source].updates(self.visit_expr, emit) for source in used]
        data, (axis, last) = self.visit_expr(first.data), chain.span
        shape = static_shape(first.data) or []
        if axis != last:
            merged = chain.flat(shape)
            data, *sources = (emit(relax.op.reshape(each, merged)) for each in (data, *sources))
        call = first.call.replace(
            form=COPY_RANGES,
            data=data,
            indices=(),
            updates=None,
            sources=tuple(sources),
            axes=(axis,),
            ranges=tuple(ranges),
            unique=True,
            wrap_negative=False,
            operator=chain.operator,
        ).to_call()
        return call if axis == last else relax.op.reshape(emit(call), shape)

    def _select_rows(self, chain: Chain) -> relax.Call:
        """Compute the chain as a scatter of update numbers and a selection of rows."""
        emit, first = self.builder_.emit, chain.scatters[0]
        extent = (static_shape(first.data) or [])[first.joint]
        none = emit(relax.op.full([extent], relax.const(-1, "int32"), "int32"))
        count = sum(int(scatter.count) for scatter in chain.scatters)
        numbering = first.call.replace(
            data=none,
            indices=tuple(self._indices(chain)),
            updates=relax.const(np.arange(count), "int32"),
            axes=(0,),
            reduction="max",
            include_self=True,
            **self._found(chain),
        )
        number = emit(numbering.to_call())
        fill = fill_value(made_by(first.data, self.values))
        data = self.visit_expr(first.data if fill is None else fill)
        data = self._rows(data, first.joint) if fill is None else data
        sources = [
            self._rows(scatter.updates(self.visit_expr, emit), first.joint)
            for scatter in chain.scatters
        ]
        return relax.op.reshape(emit(select_rows(data, number, sources)), static_shape(first.data))

    def _rows(self, tensor: Any, axis: int) -> Any:
        """A tensor reshaped to three axes, the given axis in the middle."""
        shape = numbers(static_shape(tensor)) or ()
        rows = [prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])]
        return self.builder_.emit(relax.op.reshape(tensor, rows))

    def _join(self, chain: Chain) -> relax.Call:
        emit, first = self.builder_.emit, chain.scatters[0]
        updates = [scatter.updates(self.visit_expr, emit) for scatter in chain.scatters]
        last_wins = first.replaces and not chain.is_unique
        joined = first.call.replace(
            data=self.visit_expr(first.data),
            indices=tuple(self._indices(chain)),
            updates=emit(relax.op.concat(updates, first.joint)),
            ordered=last_wins or first.call.ordered,
            **self._found(chain),
        )
        return joined.to_call()

    def _found(self, chain: Chain) -> dict[str, Any]:
        """Attributes of the merged call: facts about its indices, its name in reports."""
        return {
            "wrap_negative": chain.wrap_negative,
            "unique": chain.is_unique,
            "in_range": False,
            "known": "",
            "operator": chain.operator,
        }

    def _indices(self, chain: Chain) -> list[Any]:
        first, positions = chain.scatters[0], chain.positions
        if positions is not None and isinstance(first, NormalisedRows):
            extents = numbers([(static_shape(first.data) or [])[axis] for axis in first.axes])
            vectors = np.unravel_index(positions, extents or ())
            return [relax.const(vector, "int64") for vector in vectors]
        dtypes = {dtype for scatter in chain.scatters for dtype in scatter.index_dtypes}
        dtype = dtypes.pop() if len(dtypes) == 1 else "int64"
        emit = self.builder_.emit
        parts = [scatter.indices(self.visit_expr, emit, dtype) for scatter in chain.scatters]
        return [
            emit(relax.op.concat(list(tensors), first.index_joint))
            for tensors in zip(*parts, strict=True)
        ]
