"""Attention of 16-bit floats is one kernel, that writes no tensor of queries times keys.

The softmax is made while keys and values pass by (T. Dao, "FlashAttention-2: Faster Attention with
Better Parallelism and Work Partitioning", arXiv 2307.08691, 2023). What makes a score of a product
is computed there, too. Heads that share keys and values read the same ones, tensors with their
axes in another order are read as they lie in memory, and the result is written in the order of
axes that the next operator wants. Keys that no query of a block sees, such as those behind it, are
not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer

from tvm_scatter.emit.attention import AttentionProblem, AttentionSizes
from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.attention import AttentionFunction, RowsOf, ScoresOf, rows_at
from tvm_scatter.lowering.inlined import NotInlined
from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.shapes import is_empty, plain_size, same_size
from tvm_scatter.passes.analysis.attention import AttentionSearch, FoundAttention, leaves
from tvm_scatter.passes.analysis.bindings import Bindings
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.masked_scores import only_masks, seen_keys
from tvm_scatter.passes.analysis.strided_views import Axis, View
from tvm_scatter.selection.backend import backend_of

from .functions import with_found
from .report import note


@dataclass(frozen=True)
class _Fused:
    """Attention as a call.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        Computes it.
    inputs : list of relax.Expr
        What it reads.
    type_ : relax.TensorType
        The type of what it writes.
    numbers : int or expression
        How many numbers of single precision it needs memory for besides; 0 for none.
    """

    function: Any
    inputs: list[Any]
    type_: Any
    numbers: Any


def FuseAttention() -> tvm.transform.Pass:
    """The pass."""

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_found(mod, _found, _Rewriter)

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseAttention")


def _found(name: str, function: relax.Function) -> dict[Any, _Fused]:
    """The attention of a function, by the variable of what a kernel writes."""
    bindings = Bindings(function)
    search = AttentionSearch(bindings)
    candidates = [each for each in bindings if search.is_candidate(each)]
    if not candidates or any(may_write(each.value) for each in bindings):
        return {}
    found: dict[Any, _Fused] = {}
    for candidate in candidates:
        target = target_of(candidate.var)
        backend = backend_of(target)
        if backend.attention is None or not backend.multiplies_halves(target):
            continue
        where = f"{name}.{candidate.var.name}"
        try:
            attention = search.found(candidate)
            fused = _fused(attention, target)
        except ScatterError as reason:
            note("attention", where, f"reads its weights from memory: {reason}")
            continue
        found[attention.result.var] = fused
        where = f"{name}.{attention.result.var.name}"
        note("attention", where, "is attention in one kernel, whose scores are in no memory")
    return found


def _fused(found: FoundAttention, target: Any) -> _Fused:
    """Attention as a call of a function.

    Raises
    ------
    NotInlined
        If no function of this package computes it.
    """
    depth, width = (view.axes[-1].size for view in (found.query, found.value))
    if not isinstance(depth, int) or not isinstance(width, int):
        raise NotInlined("the sizes of its heads are not known")
    attention: Any = backend_of(target).attention
    refusal = attention.refusal(depth, width)
    if refusal is not None:
        raise NotInlined(refusal)
    views = (found.query, found.key, found.value)
    if len({str(view.source.ty.dtype) for view in views}) > 1 or found.value.factor != 1:
        raise NotInlined("its operands have several types")
    inputs = [view.source for view in views]
    if any(map(is_empty, inputs)):
        raise NotInlined("it has no elements")
    scores = ScoresOf(
        found.product, found.scores, found.calls, found.numbers, list(dict.fromkeys(leaves(found)))
    )
    made = AttentionFunction(scores, inputs)
    shape = list(found.scores.ty.shape.values)
    rows = [_rows(view) for view in views]
    out = _out(found.order, [*shape[:-1], width])
    out_type = found.result.var.ty
    out_shape = [made.sized(size) for size in out_type.shape.values]
    sizes = list(map(made.sized, shape))
    shared = _shared(found)
    own = _sizes(sizes, depth, width, shared)
    strides = [step for each in (*rows, out) for step in (*each.strides, each.stride, each.begin)]
    made.check_sizes([*sizes, *out_shape, *(made.sized(step) for step in strides)])
    axes = [tirx.Var(f"x{at}", "int64") for at in range(len(shape) - 2)]
    query, key = (tirx.Var(each, "int64") for each in ("query", "key"))
    product, score = made.score(axes, query, key)
    factor = found.query.factor * found.key.factor

    def emit(buffer_of: Any, flat: Any, result: Any, workspace: Any) -> None:
        whole = flat(score)
        seen = seen_keys(whole, query, key, axes[-1:])
        placed = [rows_at(each, axes, buffer_of(each.source), made.sized) for each in rows]
        problem = AttentionProblem(
            dtype=str(inputs[0].ty.dtype),
            axes=axes,
            sizes=own,
            query=placed[0],
            key=placed[1],
            value=placed[2],
            out=rows_at(out, axes, result, made.sized),
            factor=factor,
            product=product,
            query_at=query,
            key_at=key,
            score=Analyzer().simplify(whole),
            seen_score=seen.score,
            masks_only=factor > 0 and only_masks(Analyzer().simplify(whole), product),
            empty_is_zero=found.empty_is_zero,
            first=seen.first,
            end=seen.end,
        )
        attention.emit(problem, workspace)

    plain = list(map(plain_size, shape))
    numbers = attention.workspace(_sizes(plain, depth, width, shared))
    needs_memory = not (isinstance(numbers, int) and numbers == 0)
    dtype = str(out_type.dtype)
    function = made.function(target, out_shape, dtype, needs_memory, emit)
    return _Fused(function, made.inputs, relax.TensorType(out_type.shape, dtype), numbers)


def _sizes(shape: Sequence[Any], depth: int, width: int, shared: int) -> AttentionSizes:
    *outer, queries, keys = shape
    return AttentionSizes(outer, queries, keys, depth, width, shared)


def _shared(found: FoundAttention) -> int:
    """How many neighbouring heads have the same keys and values."""

    def of(view: View) -> Any:
        axis = view.axes[-3] if len(view.axes) > 2 else Axis(1, 0)
        return axis.size if same_size(axis.stride, 0) else axis.shared

    counts = [of(view) for view in (found.key, found.value)]
    known = all(isinstance(each, int | tirx.IntImm) for each in counts)
    return int(counts[0]) if known and int(counts[0]) == int(counts[1]) else 1


def _rows(view: View) -> RowsOf:
    *outer, row, _ = view.axes
    return RowsOf(
        view.source,
        [axis.stride for axis in outer],
        [axis.shared for axis in outer],
        row.stride,
        view.begin,
    )


def _out(order: Sequence[int], sizes: Sequence[Any]) -> RowsOf:
    """Where the rows of the result are, whose axes lie in memory in some order."""
    strides: dict[int, Any] = {}
    stride: Any = 1
    for at in reversed(order):
        strides[at] = stride
        stride = stride * sizes[at]
    rank = len(sizes)
    outer = [strides[at] for at in range(rank - 2)]
    return RowsOf(None, outer, [1] * len(outer), strides[rank - 2])


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, found: Mapping[Any, _Fused]) -> None:
        super().__init__(mod)
        self._found = found

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        fused = self._found.get(binding.var)
        if fused is not None:
            function = self.builder_.add_func(fused.function, "attention")
            inputs = [self.visit_expr(each) for each in fused.inputs]
            value = self._called(function, inputs, fused)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)

    def _called(self, function: Any, inputs: Any, fused: _Fused) -> Any:
        if isinstance(fused.numbers, int) and fused.numbers == 0:
            return relax.op.call_tir(function, inputs, fused.type_)
        memory = relax.TensorType([fused.numbers], "float32")
        results = relax.op.call_tir(function, inputs, [fused.type_, memory])
        return relax.TupleGetItem(self.builder_.emit(results), 0)
