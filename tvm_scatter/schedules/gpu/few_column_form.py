"""Products of any rows with matrices of a few columns, such as the gate of a mixture."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import tvm
from tvm import tirx

from tvm_scatter.emit.expressions import is_by_index, varies
from tvm_scatter.emit.tensors import element_bytes

from .gather_form import has_vectors, neighbours_along
from .product_blocks import ProductBlock, product_block

#: The fewest and the most columns, and the fewest terms of a sum.
_FEWEST, _MOST, _FEWEST_TERMS = 2, 15, 4
#: Columns of which a thread has sums of eight rows.
_NARROW = 8
#: Bytes of an access.
_ACCESS_BYTES = 16
_WARP = 32


@dataclass(frozen=True)
class FewColumnProduct(ProductBlock):
    """A product of few columns. Its rows are the last coordinates in front of these.

    Attributes
    ----------
    left, right : TensorLoad
        An element of either factor, at these coordinates.
    """

    left: Any
    right: Any

    @property
    def rows(self) -> int:
        """The rows that threads multiply at a time."""
        return 8 if self.sizes[-2] <= _NARROW else 4

    @property
    def terms_beside(self) -> int:
        """The terms of a row that a thread reads by one access."""
        return _lanes(self.left, self.axes[-1], self.sizes[-1])

    @property
    def columns_beside(self) -> int:
        """The columns of a term that a thread reads by one access."""
        return _lanes(self.right, self.axes[-2], self.sizes[-2])

    @property
    def threads(self) -> int:
        """The threads that multiply the same rows: no more than have a term, a power of two."""
        terms = self.sizes[-1]
        accesses = terms // self.terms_beside if isinstance(terms, int) else _WARP
        return 1 << min(accesses, _WARP).bit_length() - 1


def few_column_product(function: tirx.PrimFunc) -> FewColumnProduct | None:
    """The one product of a function, if it has few columns; ``None`` otherwise."""
    block = product_block(function)
    if block is None or len(block.axes) < 3:
        return None
    *outer, columns, terms = block.sizes
    if not isinstance(columns, int) or not _FEWEST <= columns <= _MOST or 0 in outer:
        return None
    if isinstance(terms, int) and terms < _FEWEST_TERMS:
        return None
    for factors in (block.factors, block.factors[::-1]):
        found = _product(block, *map(_loaded, factors))
        if found is not None:
            return found
    return None


def _loaded(factor: Any) -> Any:
    """The load that a factor is; ``None`` if it is computed, or read by index."""
    load = factor.value if isinstance(factor, tirx.Cast) else factor
    is_load = isinstance(load, tvm.ir.TensorLoad) and bool(load.indices)
    return load if is_load and not is_by_index(load) else None


def _product(block: ProductBlock, left: Any, right: Any) -> FewColumnProduct | None:
    if left is None or right is None:
        return None
    *_, row, column, term = block.axes

    def moves(load: Any) -> list[bool]:
        return [any(varies(index, axis) for index in load.indices) for axis in (row, column, term)]

    if moves(left) != [True, False, True] or moves(right) != [False, True, True]:
        return None
    *others, last = left.indices
    if not last.same_as(term) or any(varies(index, term) for index in others):
        return None
    return FewColumnProduct(**vars(block), left=left, right=right)


def _lanes(load: Any, axis: Any, size: Any) -> int:
    if not isinstance(size, int) or not has_vectors(load.source):
        return 1
    beside = neighbours_along(load, axis)
    return gcd(beside, size, _ACCESS_BYTES // element_bytes(load.source)) if beside else 1
