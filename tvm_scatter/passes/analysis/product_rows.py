"""Products that read what they multiply where it lies: rows by index, and transposed matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.target import Target

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.lowering.fused_reads import IS_READ
from tvm_scatter.lowering.fusion_patterns import INJECTIVE, ROOT, fusion_pattern
from tvm_scatter.options import current_options
from tvm_scatter.passes.functions import is_ours_to_change
from tvm_scatter.problem.reductions import HALVES
from tvm_scatter.selection.backend import backend_of

from .bindings import Binding, Bindings
from .call_groups import arguments_of, called_function, says_sizes
from .matrix_products import MatrixProduct, matrix_product

#: So often may each row be computed, at most. Twice, what is read for a sum or difference of two
#: rows is still less than what would be written and read again.
_MOST_TILES = 2


@dataclass(frozen=True)
class ProductRows:
    """A product, and what computes its operands.

    Attributes
    ----------
    bindings : tuple of Binding
        Calls of functions that TVM has legalized: reads by index, what is computed of them,
        transpositions, and last the product.
    arguments : tuple of relax.Expr
        What they read that none of them computes.
    reads : bool
        Whether it reads rows by index.
    """

    bindings: tuple[Binding, ...]
    arguments: tuple[Any, ...]
    reads: bool

    def __str__(self) -> str:
        return ", ".join(each.value.args[0].name_hint for each in self.bindings[:-1])


def product_rows(mod: tvm.IRModule) -> dict[Any, dict[Any, ProductRows]]:
    """The products of each function that has some, by the variable that they are bound to.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    if not current_options().products:
        return {}
    return {
        name: found
        for name, function in mod.functions.items()
        if is_ours_to_change(function) and (found := _found(Bindings(function), mod))
    }


def _found(bindings: Bindings, mod: tvm.IRModule) -> dict[Any, ProductRows]:
    found: dict[Any, ProductRows] = {}
    for binding in bindings:
        product = _product(binding, mod)
        if product is None:
            continue
        # That products of halves gain by reading rows by index is not measured.
        tiles = None if product.dtype in HALVES else product.columns_of_tiles
        group = _group(binding, bindings, mod) if tiles and tiles <= _MOST_TILES else [binding]
        reads = any(IS_READ in mod[each.value.args[0]].attrs for each in group)
        group = group if reads else [binding]
        group = [*_transpositions(group, bindings, mod), *group]
        rows = ProductRows(tuple(group), tuple(arguments_of(group)), reads)
        if len(group) > 1 and says_sizes(group, rows.arguments):
            found[binding.var] = rows
    return found


def _transpositions(group: list[Binding], bindings: Bindings, mod: tvm.IRModule) -> list[Binding]:
    """What transposes a factor. That costs nothing where a product reads it, so all others may."""
    factors = group[-1].value.args[1].fields
    taken = [
        each
        for each in bindings.all[: group[-1].at]
        if any(map(each.var.same_as, factors)) and each.fused == group[-1].fused
    ]
    functions = [called_function(each, mod) for each in taken]
    return [
        each
        for each, function in zip(taken, functions, strict=True)
        if function is not None and each not in group and _transposes(function)
    ]


def _transposes(function: tirx.PrimFunc) -> bool:
    """Whether a function only puts the axes of a tensor in another order."""
    stores = all_of(function.body, tirx.BufferStore)
    if len(stores) != 1 or not isinstance(stores[0].value, tvm.ir.TensorLoad):
        return False
    places, read = stores[0].indices, stores[0].value.indices
    found = [sum(index.same_as(place) for place in places) for index in read]
    if found != [1] * len(places) or not all(isinstance(each, tirx.Var) for each in read):
        return False
    # Halves are brought to shared memory in vectors of lines or of terms.
    is_half = str(stores[0].buffer.dtype) in HALVES
    return not is_half or any(map(read[-1].same_as, places[-2:]))


def _group(product: Binding, bindings: Bindings, mod: tvm.IRModule) -> list[Binding]:
    """A product behind what computes its rows from reads by index, and what else they need."""
    readers = bindings.readers()
    inside, wanted = {product.var}, {product.value.args[1].fields[0]}
    group = [product]
    for binding in reversed(bindings.all[: product.at]):
        if binding.var not in wanted or binding.fused != product.fused:
            continue
        function = called_function(binding, mod)
        is_alone = all(reader.var in inside for reader in readers[binding.var])
        is_inner = isinstance(binding.var, relax.DataflowVar) and is_alone
        if function is None or fusion_pattern(function) > INJECTIVE or not is_inner:
            continue
        inside.add(binding.var)
        group.append(binding)
        if IS_READ not in function.attrs:
            wanted |= binding.reads
    return group[::-1]


def _product(binding: Binding, mod: tvm.IRModule) -> MatrixProduct | None:
    function = called_function(binding, mod)
    if function is None or fusion_pattern(function) != ROOT:
        return None
    product, target = matrix_product(function), Target.current(allow_none=True)
    if product is None or product.dtype not in HALVES:
        return product
    has_tiles = target is not None and backend_of(target).multiplies_halves(target)
    return product if has_tiles else None
