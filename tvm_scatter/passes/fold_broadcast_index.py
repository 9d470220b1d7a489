"""Rewrites scatters whose index is a broadcast 1-D tensor to one index per row.

PyTorch Geometric and its like call ``scatter`` with an index of one number per row, expanded to the
shape of the updates. As an ``index_put`` the rows are contiguous, and the expanded index is never
computed. This pass runs before LegalizeOps, which turns a broadcast into a function that is not
recognised any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import is_one, same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.broadcast_source import BroadcastSource, broadcast_source
from tvm_scatter.passes.analysis.definitions import Definitions

from .functions import with_changes
from .report import note


def FoldBroadcastIndex() -> tvm.transform.Pass:
    """The pass. It does nothing if the strategy is off or has no implementations for the target."""

    def fold(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if not current_options().enabled:
            return mod
        return with_changes(
            mod, lambda name, function: _fold_function(mod, name.name_hint, function)
        )

    return tvm.transform.module_pass(fold, opt_level=0, name="FoldBroadcastIndex")


@dataclass(frozen=True)
class _Fold:
    """A scatter to rewrite; ``crop`` is the shape of the part of the updates that it reads."""

    axis: int
    index: BroadcastSource
    crop: list[int] | None


def _fold_function(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function with these scatters rewritten, or ``None`` if there are none."""
    definitions = Definitions.of(function)
    folds = {}
    for var, value in definitions.values.items():
        if is_scatter(value):
            fold = _plan(ScatterCall.from_call(value), definitions)
            if fold is not None and definitions.reaches(fold.index.source, var):
                folds[var] = fold
                note("fold_broadcast_index", f"{name}.{var.name}", "takes one index per row")
    if not folds:
        return None
    return _Rewriter(mod, folds, _unread(folds, definitions)).visit_expr(function)


def _plan(call: ScatterCall, definitions: Definitions) -> _Fold | None:
    # The expanded index is a copy; its source may share memory with data that is overwritten.
    if call.form != SCATTER_ELEMENTS or call.in_place:
        return None
    data, index, updates = map(static_shape, call.tensors)
    if strategy_of(call.data)[1] is None or data is None or index is None or updates is None:
        return None
    rank = len(data)
    [axis] = call.axes
    # Lowering reports a bad axis or rank.
    if rank < 2 or len(index) != rank or not -rank <= axis < rank:
        return None
    axis %= rank
    others = [at for at in range(rank) if at != axis]
    # A row form writes whole rows of the data. A smaller index writes only a part of each.
    if not all(same_size(data[at], index[at]) for at in others):
        return None
    if all(is_one(index[at]) for at in others):
        return None
    crop = _crop(index, updates)
    source = broadcast_source(call.indices[0], axis, definitions.values)
    if source is None or crop is False:
        return None
    return _Fold(axis, source, crop)


def _crop(index: list[Any], updates: list[Any]) -> Any:
    """The shape of the part of the updates that is read; ``None`` if all, ``False`` if unknown."""
    if not updates:
        return None
    if len(updates) != len(index):
        return False
    if all(same_size(box, whole) for box, whole in zip(index, updates, strict=True)):
        return None
    if not all(isinstance(size, int | tirx.IntImm) for size in (*index, *updates)):
        return False
    box = [int(size) for size in index]
    fits = all(size <= int(whole) for size, whole in zip(box, updates, strict=True))
    return box if fits else False


def _unread(folds: dict[Any, _Fold], definitions: Definitions) -> set[Any]:
    """Variables between source and scatter that nothing reads after the rewrite."""
    uses = dict(definitions.uses)
    unread: set[Any] = set()
    for fold in folds.values():
        for var in fold.index.path:
            uses[var] -= 1
            if uses[var] > 0:
                break
            unread.add(var)
    return unread


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, folds: dict[Any, _Fold], unread: set[Any]) -> None:
        super().__init__(mod)
        self.folds = folds
        self.unread = unread

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.unread:
            return
        if binding.var in self.folds:
            call = ScatterCall.from_call(binding.value)
            row_form = self._row_form(call, self.folds[binding.var])
            binding = relax.VarBinding(binding.var, row_form.to_call())
        super().visit_var_binding_(binding)

    def _row_form(self, call: ScatterCall, fold: _Fold) -> ScatterCall:
        emit, updates = self.builder_.emit, call.updates
        if fold.crop is not None:
            axes = list(range(len(fold.crop)))
            begin = [0] * len(axes)
            updates = emit(relax.op.strided_slice(self.visit_expr(updates), axes, begin, fold.crop))
        row = fold.index.row(self.visit_expr(fold.index.source), emit)
        return call.replace(form=INDEX_PUT, indices=(row,), updates=updates, axes=(fold.axis,))
