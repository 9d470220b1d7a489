"""The logarithm of a softmax of long rows is not written where single elements or sums are read.

A cross entropy reads one element of each row, and with smoothed labels the sum of each row. The
logarithm of the softmax is as large as what it is computed from. Instead of it, a kernel of this
package computes a few numbers of each row, in one pass over it: the greatest element, the sum of
the exponentials, and the sum of the row where that is wanted. From those, readers compute the
elements that they need. For 8192 rows of 32 000 labels an H200 reads 1 GB once, where it would read
it three times, write it, and read what it has written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.exponential_sums import (
    SUMS_EXPONENTIALS,
    exponential_sums,
    wide_type,
)
from tvm_scatter.lowering.fusion_patterns import OPAQUE, PATTERN
from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.read_ops import GATHER_ELEMENTS
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.softmax_readers import SoftmaxReaders
from tvm_scatter.problem.reductions import FLOATS
from tvm_scatter.selection.backend import backend_of

from .functions import Emit, with_found
from .report import note

_LOG_SOFTMAX = "relax.nn.log_softmax"
#: The longest row that is left to TVM. A warp keeps it in its registers or close by.
_SHORT = 1024


@dataclass(frozen=True)
class _Softmax:
    """The logarithm of a softmax that need not be written.

    Attributes
    ----------
    source : relax.Expr
        The tensor that it is of, as it lies in memory.
    readers : sequence of Binding
        What reads it.
    """

    source: Any
    readers: Sequence[Binding]


@dataclass(frozen=True)
class _Rows:
    """A tensor, and what is known of its rows, from which the logarithm of a softmax follows.

    Attributes
    ----------
    values : relax.Expr
        The tensor.
    dtype : str
        The type of the result.
    greatest, logarithm : relax.Expr
        What :func:`.exponential_sums.exponential_sums` says of each row.
    distances : relax.Expr, optional
        The same; ``None`` where nobody asks for it.
    """

    values: Any
    dtype: str
    greatest: Any
    logarithm: Any
    distances: Any

    def elements(self, values: Any, emit: Emit) -> Any:
        """The elements of the result at the places of some of the tensor's."""
        wide = wide_type(self.dtype)
        if str(values.ty.dtype) != wide:
            values = emit(relax.op.astype(values, wide))
        result = emit(relax.op.subtract(values, self.greatest))
        result = emit(relax.op.subtract(result, self.logarithm))
        return result if wide == self.dtype else emit(relax.op.astype(result, self.dtype))

    def sum(self, call: relax.Call, emit: Emit) -> Any:
        """The sums of the rows of the result: none has to be rounded before they are added up."""
        width = relax.const(int(static_shape(self.values)[-1]), self.dtype)  # type: ignore[index]
        logarithms = emit(relax.op.multiply(self.logarithm, width))
        result = emit(relax.op.subtract(self.distances, logarithms))
        return result if call.attrs.keepdims else emit(relax.op.squeeze(result, [-1]))

    def read(self, call: relax.Call, emit: Emit) -> Any:
        """The elements at an index. A bad index reads zero, as of the result itself."""
        index = call.args[1]
        elements = relax.Call(call.op, [self.values, *call.args[1:]], attrs=call.attrs)
        result = self.elements(emit(elements), emit)
        if call.attrs["in_range"]:
            return result
        width = int(static_shape(self.values)[-1])  # type: ignore[index]
        least = -width if call.attrs["wrap_negative"] else 0
        first, end = (relax.const(each, str(index.ty.dtype)) for each in (least, width))
        valid = relax.op.logical_and(
            emit(relax.op.greater_equal(index, first)), emit(relax.op.less(index, end))
        )
        return emit(relax.op.where(emit(valid), result, relax.const(0, self.dtype)))


def _noted(name: str, function: relax.Function) -> Mapping[Any, Any]:
    """What is found in a function, with a note of each."""
    found = _found(function)
    for var in found:
        text = "is not written: its readers compute what they need of it"
        note("reductions", f"{name}.{var.name}", text)
    return found


def UnwrittenSoftmax() -> tvm.transform.Pass:
    """The pass."""

    def rewrite(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_found(mod, _noted, _Rewriter)

    return tvm.transform.module_pass(rewrite, opt_level=0, name="UnwrittenSoftmax")


def _found(function: relax.Function) -> dict[Any, _Softmax]:
    """The results that need not be written, by variable."""
    bindings = Bindings(function)
    candidates = [each for each in bindings if _is_candidate(each)]
    if not candidates:
        return {}
    search = SoftmaxReaders(bindings)
    readers = {each: search.of(each) for each in candidates}
    return {
        each.var: _Softmax(search.source(each), those)
        for each, those in readers.items()
        if those is not None
    }


def _is_candidate(binding: Binding) -> bool:
    """Whether an operator computes the logarithm of a softmax of long rows, on a GPU."""
    call = binding.value
    if not binding.fused or operator_of(call) != _LOG_SOFTMAX:
        return False
    shape = static_shape(call.args[0])
    if not shape or int(call.attrs.axis) % len(shape) != len(shape) - 1:
        return False
    is_long = isinstance(shape[-1], tirx.IntImm) and int(shape[-1]) > _SHORT
    backend = backend_of(target_of(call.args[0]))
    return is_long and backend.schedules_reads and str(call.ty.dtype) in FLOATS


def _is_row_sum(call: Any, dtype: str) -> bool:
    """Whether a call adds up rows of numbers that nothing rounds before."""
    if operator_of(call) != "relax.sum" or dtype != wide_type(dtype) or call.attrs.axis is None:
        return False
    rank = call.args[0].ty.ndim
    return [int(axis) % rank for axis in call.attrs.axis] == [rank - 1]


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, found: Mapping[Any, _Softmax]) -> None:
        super().__init__(mod)
        self._found = found
        self._read = {each.var: var for var, known in found.items() for each in known.readers}
        self._rows: dict[Any, _Rows] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        softmax = self._found.get(binding.var)
        if softmax is not None:
            self._rows[binding.var] = self._computed(binding.value, softmax)
        read = self._read.get(binding.var)
        if read is not None:
            binding = relax.VarBinding(binding.var, self._reading(binding.value, read))
        super().visit_var_binding_(binding)

    def _computed(self, call: relax.Call, softmax: _Softmax) -> _Rows:
        """What the readers compute elements from."""
        values, dtype = self.visit_expr(softmax.source), str(call.ty.dtype)
        with_distances = any(_is_row_sum(each.value, dtype) for each in softmax.readers)
        numbers = self.builder_.emit(
            self.builder_.call_te(
                exponential_sums,
                values,
                with_distances,
                primfunc_name_hint="exponential_sums",
                primfunc_attrs={PATTERN: OPAQUE, SUMS_EXPONENTIALS: 1},
            )
        )
        fields = [self._emit(relax.TupleGetItem(numbers, at)) for at in range(2 + with_distances)]
        return _Rows(values, dtype, *fields, *([] if with_distances else [None]))

    def _reading(self, call: relax.Call, var: Any) -> Any:
        """What a reader computes, without the result that it reads."""
        rows = self._rows[var]
        if _is_row_sum(call, rows.dtype):
            return rows.sum(call, self._emit)
        if operator_of(call) == GATHER_ELEMENTS:
            return rows.read(call, self._emit)
        # Each reader gets its own: TVM writes what several need.
        own = rows.elements(rows.values, self._emit)
        arguments = [own if each.same_as(var) else each for each in call.args]
        return relax.Call(call.op, arguments, attrs=call.attrs)

    def _emit(self, value: Any) -> Any:
        return self.builder_.emit(self.visit_expr(value))
