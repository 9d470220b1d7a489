"""Symbolic sizes that must be equal: compiled as if they were, and checked at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tvm import relax

from tvm_scatter.ops.shapes import SymbolTable
from tvm_scatter.problem.signature import Dim

from .size_check import Equal, Place, SizeCheck


class Tensor(Protocol):
    """An operand of a call. It need not be emitted yet."""

    @property
    def ty(self) -> relax.TensorType:
        """Its type."""

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant."""


class Agreement:
    """Collects the sizes of one call that must be equal.

    Parameters
    ----------
    operator : str
        The name of the operator in errors.
    symbols : SymbolTable
        The names of symbolic sizes. Sizes that must be equal get one name.
    tensors : dict of str to Tensor
        The operands, by their names in errors.
    """

    def __init__(self, operator: str, symbols: SymbolTable, tensors: Mapping[str, Tensor]) -> None:
        self._operator = operator
        self._symbols = symbols
        self._tensors = tensors
        self._rules: list[Equal] = []

    def expect_equal(self, left: Place, right: Place) -> None:
        """Require two sizes to be equal. A pair of numbers is not checked here."""
        one, other = self._size(left), self._size(right)
        if one == other or (isinstance(one, int) and isinstance(other, int)) or 0 in (one, other):
            return
        if self._tensors[left.tensor].is_constant:
            # The check returns the left tensor, and cannot return a constant.
            left, right = right, left
        self._rules.append(Equal(left, right))
        if isinstance(one, str):
            self._symbols.take_for(one, other)
        elif isinstance(other, str):
            self._symbols.take_for(other, one)

    def expect_broadcast(self, names: Sequence[str]) -> list[Place]:
        """Require that tensors broadcast against each other.

        Returns
        -------
        places : list of Place
            For each dimension of the common shape, a tensor's dimension of that size.
        """
        shapes = {name: self._symbols.shape(self._operator, self._tensors[name]) for name in names}
        rank = max(map(len, shapes.values()))
        common: list[Place] = []
        for behind in range(rank, 0, -1):
            places = [
                Place(name, len(shape) - behind)
                for name, shape in shapes.items()
                if len(shape) >= behind
            ]
            wide = [place for place in places if self._size(place) != 1]
            for place in wide[1:]:
                self.expect_equal(place, wide[0])
            common.append((wide or places)[0])
        return common

    def expect_to_fit(self, name: str, wanted: Sequence[Place]) -> None:
        """Require that a tensor broadcasts to the shape given by the sizes at ``wanted``."""
        rank = len(self._symbols.shape(self._operator, self._tensors[name]))
        for dimension, place in zip(range(rank)[::-1], wanted[::-1], strict=False):
            if self._size(Place(name, dimension)) != 1:
                self.expect_equal(Place(name, dimension), place)

    def check(self) -> SizeCheck | None:
        """The check for run time, which returns the operands; ``None`` if not needed."""
        if not self._rules:
            return None
        places = [place for rule in self._rules for place in (rule.left, rule.right)]
        return SizeCheck(
            operator=self._operator,
            rules=tuple(self._rules),
            tensors={place.tensor: self._tensors[place.tensor] for place in places},
            returned=tuple(dict.fromkeys(rule.left.tensor for rule in self._rules)),
        )

    def _size(self, place: Place) -> Dim:
        shape = self._symbols.shape(self._operator, self._tensors[place.tensor])
        return shape[place.dimension]
