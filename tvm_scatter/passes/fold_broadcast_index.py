"""Rewrites scatters and reads whose index has one number per row to an index per row.

PyTorch Geometric and its like call ``scatter`` with an index of one number per row, expanded to the
shape of the updates. As an ``index_put`` the rows are contiguous, and the expanded index is never
computed. Rows of a single element, as attention of one head has them, need no expansion: their
index has all numbers along one axis already. In the form of rows, whatever compares indices finds
that they are the same. This pass runs before LegalizeOps, which turns a broadcast into a function
that is not recognised any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.own_reads import own_read
from tvm_scatter.lowering.reads import Read, is_read, read_of
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.read_forms import ByAxes, ByElements
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import is_empty, same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.broadcast_source import BroadcastSource, broadcast_source
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write

from .functions import Emit, with_changes
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
class _FoldedScatter:
    """A scatter to rewrite; ``crop`` is the shape of the part of the updates that it reads."""

    call: ScatterCall
    axis: int
    index: BroadcastSource
    crop: list[int] | None

    def of_rows(self, row: Any, visit: Emit, emit: Emit) -> relax.Expr:
        """The scatter by one index per row."""
        updates = self.call.updates
        if self.crop is not None:
            axes = list(range(len(self.crop)))
            begin = [0] * len(axes)
            updates = emit(relax.op.strided_slice(visit(updates), axes, begin, self.crop))
        rows = self.call.replace(form=INDEX_PUT, indices=(row,), updates=updates, axes=(self.axis,))
        return rows.to_call()


@dataclass(frozen=True)
class _FoldedRead:
    """A read to rewrite."""

    data: Any
    read: Read
    index: BroadcastSource

    def of_rows(self, row: Any, visit: Emit, emit: Emit) -> relax.Expr:
        """The read by one index per row."""
        wraps, axes = self.read.check.wrap_negative, ByAxes(self.read.form.addressed)
        given = {"in_range": self.read.proved, "checked": self.read.checked}
        by_rows = replace(self.read, form=axes)
        return own_read(self.data, [row], by_rows, wrap_negative=wraps, **given)


_Fold = _FoldedScatter | _FoldedRead


def _fold_function(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function with these calls rewritten, or ``None`` if there are none."""
    definitions = Definitions.of(function)
    folds = {}
    for var, value in definitions.values.items():
        fold = _folded_scatter(value, definitions) or _folded_read(value, definitions)
        if fold is not None and definitions.reaches(fold.index.source, var):
            folds[var] = fold
            note("fold_broadcast_index", f"{name}.{var.name}", "takes one index per row")
    if not folds:
        return None
    return _Rewriter(mod, folds, _unread(folds, definitions)).visit_expr(function)


def _folded_scatter(value: Any, definitions: Definitions) -> _FoldedScatter | None:
    call = ScatterCall.from_call(value) if is_scatter(value) else None
    # The expanded index is a copy; its source may share memory with data that is overwritten.
    if call is None or call.form != SCATTER_ELEMENTS or call.in_place:
        return None
    # Elements of a tensor with one axis are its rows.
    data, updates = map(static_shape, (call.data, call.updates))
    if data is None or updates is None or len(data) < 2:
        return None
    [axis] = call.axes
    # Lowering reports a bad axis.
    if not -len(data) <= axis < len(data):
        return None
    axis %= len(data)
    [index] = call.indices
    source, crop = _row_index(call.data, index, axis, definitions), _crop(index, updates)
    return None if source is None or crop is False else _FoldedScatter(call, axis, source, crop)


def _folded_read(value: Any, definitions: Definitions) -> _FoldedRead | None:
    try:
        read = read_of(value) if is_read(value) else None
    except ScatterError:
        # Lowering reports it.
        return None
    if read is None or not isinstance(read.form, ByElements):
        return None
    data, index = value.args
    source = _row_index(data, index, read.form.axis, definitions)
    return None if source is None else _FoldedRead(data, read, source)


def _row_index(
    tensor: Any, index: Any, axis: int, definitions: Definitions
) -> BroadcastSource | None:
    """The index per row that an index per element amounts to; ``None`` if it is another."""
    data, box = static_shape(tensor), static_shape(index)
    if strategy_of(tensor)[1] is None or data is None or box is None or len(data) != len(box):
        return None
    # A row form takes whole rows of the data. A smaller index takes only a part of each.
    others = [at for at in range(len(data)) if at != axis]
    # TVM takes a size of 0 in a reshape for that of the operand.
    if is_empty(index) or not all(same_size(data[at], box[at]) for at in others):
        return None
    return broadcast_source(index, axis, definitions.values)


def _crop(tensor: Any, updates: list[Any]) -> Any:
    """The shape of the part of the updates that is read; ``None`` if all, ``False`` if unknown."""
    index = static_shape(tensor) or []
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
        #: The indices of rows that are made in the current block, since the last write.
        self.rows: dict[Any, Any] = {}

    def visit_binding_block_(self, block: relax.BindingBlock) -> relax.BindingBlock:
        outer, self.rows = self.rows, {}
        block = super().visit_binding_block_(block)
        self.rows = outer
        return block

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        return self.visit_binding_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.unread:
            return
        fold = self.folds.get(binding.var)
        if fold is not None:
            made = fold.of_rows(self._row(fold.index), self.visit_expr, self.builder_.emit)
            binding = relax.VarBinding(binding.var, made)
        super().visit_var_binding_(binding)
        if may_write(binding.value):
            self.rows.clear()

    def _row(self, index: BroadcastSource) -> Any:
        key = index.source, index.dtypes
        if key not in self.rows:
            self.rows[key] = index.row(self.visit_expr(index.source), self.builder_.emit)
        return self.rows[key]
