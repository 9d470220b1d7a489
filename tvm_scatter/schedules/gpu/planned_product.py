"""The form that a product gets by itself, before TVM computes in it what follows it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tvm import tirx
from tvm.target import Target

from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.fragment_tiles import FragmentTile
from tvm_scatter.passes.analysis.matrix_products import MatrixProduct, matrix_product
from tvm_scatter.schedules.reductions_of_one import without_reductions_of_one
from tvm_scatter.schedules.wide_reductions import with_wide_reductions
from tvm_scatter.selection.backend import backend_of

from .few_column_form import few_column_product
from .few_row_form import few_row_product
from .own_factors import with_own_factors
from .plain_rows import plain_reduction


def schedules_products(target: Target) -> bool:
    """Whether this package has schedules of products, and not only TVM."""
    return backend_of(target).schedules_reads and current_options().products


def scheduled_product(function: tirx.PrimFunc, target: Target) -> MatrixProduct | None:
    """The product of matrices that a function computes, if this package schedules it in tiles."""
    product = matrix_product(with_own_factors(function)) if schedules_products(target) else None
    if product is None or not isinstance(product.tile, FragmentTile):
        return product
    backend = backend_of(target)
    if not backend.multiplies_halves(target):
        return None
    return replace(product, by_group=backend.multiplies_in_groups(target))


def form_of_product(function: tirx.PrimFunc, target: Target) -> str | None:
    """How a product is computed, as a clause; ``None`` for others, and where TVM schedules it."""
    if not schedules_products(target):
        return None
    try:
        return _form(function, target)
    except Exception:  # a rule that fails leaves the function to TVM, whatever it raises
        return None


def _form(function: tirx.PrimFunc, target: Target) -> str | None:
    function = with_wide_reductions(without_reductions_of_one(function), integers=True)
    few = few_row_product(function)
    if few is not None:
        counts = dict(zip(few.axes, few.sizes, strict=True))
        rows = prod(counts[axis] for axis in few.rows)
        return f"reads its matrix once for {rows} rows" if rows > 1 else "reads its matrix once"
    product = scheduled_product(function, target)
    if product is None:
        columns = None if plain_reduction(function) else few_column_product(function)
        return None if columns is None else f"reads each row once for {columns.sizes[-2]} columns"
    by = " by tensor cores" if isinstance(product.tile, FragmentTile) else ""
    return f"is computed in tiles of {product.tile.rows} x {product.tile.columns}{by}"
