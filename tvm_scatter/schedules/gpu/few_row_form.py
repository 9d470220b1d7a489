"""Products of a few rows with matrices whose rows lie in memory one by one."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import tvm
from tvm import tirx

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import is_by_index, varies
from tvm_scatter.emit.tensors import element_bytes

from .gather_form import has_vectors, neighbours_along
from .product_blocks import ProductBlock, product_block

#: The most rows, and the fewest terms of a sum.
_MOST_ROWS, _FEWEST_TERMS = 8, 64
#: Bytes of an access.
_ACCESS_BYTES = 16


@dataclass(frozen=True)
class FewRowProduct(ProductBlock):
    """A product of few rows.

    Attributes
    ----------
    rows : list of Var
        The coordinates of the rows, of which only the first factor depends.
    factor : expression
        An element of the first factor, at these coordinates.
    load : TensorLoad
        The element of the matrix.
    """

    rows: list[Any]
    factor: Any
    load: Any

    @property
    def lanes(self) -> int:
        """The columns that a thread reads by one access."""
        widest = _ACCESS_BYTES // element_bytes(self.load.source)
        return gcd(neighbours_along(self.load, self.axes[-2]), self.sizes[-2], widest)


def few_row_product(function: tirx.PrimFunc) -> FewRowProduct | None:
    """The one product of a function, if it is of a few rows; ``None`` otherwise."""
    block = product_block(function)
    factors = None if block is None else _factors(block)
    if block is None or factors is None:
        return None
    axes, sizes = block.axes, block.sizes
    factor, load = factors
    rows = [
        axis
        for axis, size in zip(axes[:-2], sizes, strict=False)
        if size != 1 and not any(varies(index, axis) for index in load.indices)
    ]
    found = FewRowProduct(**vars(block), rows=rows, factor=factor, load=load)
    return found if _suits(found) else None


def _factors(block: ProductBlock) -> tuple[Any, Any] | None:
    """The first factor, and what is loaded for the second, whose neighbours are columns."""
    *_, column, term = block.axes
    for factor, other in (block.factors, block.factors[::-1]):
        load = other.value if isinstance(other, tirx.Cast) else other
        if not isinstance(load, tvm.ir.TensorLoad) or not load.indices or varies(factor, column):
            continue
        *outer, last = load.indices
        is_along = last.same_as(column) and not any(varies(index, column) for index in outer)
        by_index = is_by_index(load) or any(map(is_by_index, loads_of(factor)))
        if is_along and varies(factor, term) and not by_index:
            return (factor, load) if any(varies(index, term) for index in outer) else None
    return None


def _suits(found: FewRowProduct) -> bool:
    *outer, columns, terms = found.sizes
    counts = dict(zip(found.axes, found.sizes, strict=True))
    rows = [counts[axis] for axis in found.rows]
    if not isinstance(columns, int) or not all(isinstance(each, int) for each in rows):
        return False
    if isinstance(terms, int) and terms < _FEWEST_TERMS:
        return False
    if prod(rows) > _MOST_ROWS or 0 in outer or not has_vectors(found.load.source):
        return False
    return found.lanes > 1
