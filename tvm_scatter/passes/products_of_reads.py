"""Products of single rows with matrices that are read by index become sums over their rows.

A mixture of experts multiplies each of a few tokens with the weights of the experts that it chose.
These are read by index, and put into the order in which TVM multiplies. As a sum along the axis
that lies side by side, a product reads the weights themselves, in any order of the other axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.lowering.reads import is_read
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_empty, is_one, same_shape, same_size, static_shape
from tvm_scatter.options import current_options

from .analysis.bindings import Binding, Bindings
from .analysis.joined_axes import joined_axes
from .functions import Emit, with_changes, with_values
from .report import note

_PRODUCT = "relax.matmul"


def ProductsOfReads() -> tvm.transform.Pass:
    """The pass. It changes products on GPUs, whose sums read their rows by index."""

    def rewrite(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _rewritten(mod, name.name_hint, function))

    return tvm.transform.module_pass(rewrite, opt_level=0, name="ProductsOfReads")


def _rewritten(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    bindings = Bindings(function)
    values = {each.var: each.value for each in bindings}
    found = {
        each.var: product
        for each in bindings
        if operator_of(each.value) == _PRODUCT and (product := _product(each, values)) is not None
    }
    for var, product in found.items():
        text = f"is a sum along the rows of {product.matrix.name}"
        note("products", f"{name}.{var.name}", text)
    changes = {var: product.as_sum for var, product in found.items()}
    return with_values(mod, function, changes) if found else None


@dataclass(frozen=True)
class _Product:
    """A product of single rows.

    Attributes
    ----------
    call : relax.Call
        The product.
    matrix : relax.Expr
        What is read by index. Its last axis is that of the terms.
    batches : int
        How many of its axes go over the rows. The others go over the columns.
    """

    call: relax.Call
    matrix: Any
    batches: int

    def as_sum(self, emit: Emit) -> relax.Expr:
        row, dtype = self.call.args[0], str(self.call.ty.dtype)
        sizes = static_shape(self.matrix) or []
        columns = len(sizes) - 1 - self.batches
        shape = [*sizes[: self.batches], *[1] * columns, sizes[-1]]
        factors = [self.matrix, emit(relax.op.reshape(row, shape))]
        if str(row.ty.dtype) != dtype:
            factors = [emit(relax.op.astype(each, dtype)) for each in factors]
        found = emit(relax.op.sum(emit(relax.op.multiply(*factors)), [-1]))
        return relax.op.reshape(found, self.call.ty.shape)


def _product(binding: Binding, values: Mapping[Any, Any]) -> _Product | None:
    """A product of single rows with what is read by index; ``None`` for others."""
    row, second = binding.value.args
    strategy = strategy_of(row)[1]
    if strategy is None or not (strategy.backend.is_gpu and current_options().products):
        return None
    if not strategy.backend.sums_rows_under(current_options()):
        return None
    dtype = str(binding.var.ty.dtype)
    if dtype not in strategy.backend.fuses or row.ty.dtype != second.ty.dtype:
        return None
    sizes, matrix = static_shape(row), static_shape(second)
    if sizes is None or matrix is None or len(sizes) != len(matrix) or len(sizes) < 2:
        return None
    # TVM takes a zero in a new shape for the size that the tensor had at that place.
    if is_empty(row) or is_empty(second):
        return None
    if not is_one(sizes[-2]) or not same_shape(sizes[:-2], matrix[:-2]):
        return None
    found = joined_axes(second, values)
    read = None if found is None else values.get(found.source)
    if found is None or read is None or not is_read(read):
        return None
    *batches, terms, columns = found.axes
    outer = [at for group in batches for at in group]
    shape, data = static_shape(found.source) or [], static_shape(read.args[0]) or []
    last = len(shape) - 1
    wide = [at for at in range(last) if at in (*outer, *columns)]
    if terms != (last,) or [*outer, *columns] != wide or not isinstance(shape[-1], tirx.IntImm):
        return None
    if not data or not same_size(data[-1], shape[-1]):
        return None
    return _Product(binding.value, found.source, max(outer, default=-1) + 1)
